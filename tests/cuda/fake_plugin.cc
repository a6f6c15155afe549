// fake_plugin.cc - libpassel_fake_gpu.so: the plugin of a GPU that is emulated, for whole jobs on
// machines without one.
//
//   PASSEL_BACKEND_PATH=.../libpassel_fake_gpu.so passel train --device cuda ...
//
// The machine has one GPU for each UUID that somebody names, and those with the numbers below
// `devices`; a process sees those in $CUDA_VISIBLE_DEVICES, and without it the ones with numbers
// and whichever it is asked for. $PASSEL_FAKE_GPU, words with spaces between them, makes it worse:
//
//   none                    there is no GPU
//   devices=N               so many have a number, from 0 (8)
//   peer_access=0           none can access the memory of another
//   peer_atomics=0          or do atomic operations there
//   adversarial             operations in random order, copies torn, memory poisoned (slow)
//   seed=N                  of that order
//   memory=BYTES            so much GPU memory
//   refuse_registration     the arena cannot be registered
//   refuse_sharing          its memory cannot be shared between processes
//   mps                     an MPS server has it
//   no_library              there is no library for large products
//   opens=FILE              (the first word) it is opened for the Nth time if FILE has N bytes by
//   then, one for each;
//                           else each process counts its own
//   later=FIRST,LAST        opened the FIRSTth to LASTth time (from 1) its MPS server is not ready
//   full=FIRST,LAST         or it has no memory left
//   gone=FIRST,LAST         or there is none
//   fail_at=LAUNCH,NODE     that operation of that launch fails, both from 0
//   crash_at=LAUNCH         at this launch the process ends with SIGSEGV
//   leaks=MIB               each opening leaves so much less memory free
//   left_out=NAME           operations of this name (gather) are not done: wrong numbers
//   hang_at=LAUNCH          from this launch on nothing happens any more

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compute/accelerator.h"
#include "compute/plugin_entry.h"
#include "cuda/device_accelerator.h"
#include "cuda/error_class.h"
#include "cuda/fake_device.h"
#include "cuda/plugin_log.h"

namespace passel::cuda {
namespace {

class FakeAccelerator final : public DeviceAccelerator {
 public:
  explicit FakeAccelerator(std::unique_ptr<FakeDevice> device)
      : DeviceAccelerator(std::move(device)) {}
  ~FakeAccelerator() override {
    for (const std::string& violation : static_cast<FakeDevice&>(device()).violations()) {
      PluginLogWarning("fake GPU: " + violation);
    }
  }
};

std::optional<std::uint64_t> Number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The GPU with this number.
std::string UuidOf(std::uint64_t number) {
  return fmt::format("GPU-fa4e{:04x}-0000-0000-0000-000000000000", number);
}

// What this process sees, by CUDA's rules: the list ends at the first that is not there.
std::vector<std::string> Visible(std::uint64_t devices, const std::string& asked) {
  std::vector<std::string> visible;
  const char* const list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    for (std::uint64_t number = 0; number < devices; ++number) visible.push_back(UuidOf(number));
    if (!asked.empty() && std::find(visible.begin(), visible.end(), asked) == visible.end()) {
      visible.push_back(asked);
    }
    return visible;
  }
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const auto number = Number(word);
    const bool uuid = word.starts_with("GPU-") || word.starts_with("MIG-");
    if (!uuid && (!number || *number >= devices)) break;
    visible.push_back(uuid ? word : UuidOf(*number));
  }
  return visible;
}

// "3,7".
std::optional<std::pair<std::uint64_t, std::uint64_t>> TwoNumbers(std::string_view text) {
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos) return std::nullopt;
  const auto first = Number(text.substr(0, comma)), second = Number(text.substr(comma + 1));
  if (!first || !second) return std::nullopt;
  return std::pair(*first, *second);
}

// Which time this is, from 1.
std::uint64_t CountOpening(const std::string& file) {
  static std::uint64_t own = 0;
  if (file.empty()) return ++own;
  std::ofstream(file, std::ios::app) << '.';
  return std::filesystem::file_size(file);
}

// How opening the device goes wrong; OK if it does not.
Status FailOpening(std::string_view word, std::uint64_t opening, bool* means_something) {
  const std::size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  if (equals == std::string_view::npos || (name != "later" && name != "full" && name != "gone")) {
    return {};
  }
  const auto range = TwoNumbers(word.substr(equals + 1));
  if (!range) return {};
  *means_something = true;
  if (opening < range->first || opening > range->second) return {};
  if (name == "gone") return NotFound("there is no GPU at this time");
  const int error = name == "later" ? 807 : 2;
  return StatusOfError(error, fmt::format("making a context: error {}", error));
}

constexpr std::pair<std::string_view, bool FakeDeviceOptions::*> kSwitches[] = {
    {"adversarial", &FakeDeviceOptions::adversarial},
    {"refuse_registration", &FakeDeviceOptions::refuse_registration},
    {"refuse_sharing", &FakeDeviceOptions::refuse_sharing},
    {"mps", &FakeDeviceOptions::mps},
    {"no_library", &FakeDeviceOptions::no_library}};

// What one word changes; false for a word that means nothing.
bool Take(std::string_view word, FakeDeviceOptions* options, std::uint64_t* devices) {
  for (const auto& [name, member] : kSwitches) {
    if (word == name) return options->*member = true;
  }
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = word.substr(0, equals), text = word.substr(equals + 1);
  if (name == "left_out") {
    options->left_out = text;
    return true;
  }
  if (name == "fail_at") {
    const auto at = TwoNumbers(text);
    if (at) options->fail_at = {at->first, static_cast<int>(at->second)};
    return at.has_value();
  }
  const auto value = Number(text);
  if (!value) return false;
  if (name == "seed") {
    options->seed = *value;
  } else if (name == "memory") {
    options->memory_limit = *value;
  } else if (name == "crash_at") {
    options->crash_at = *value;
  } else if (name == "hang_at") {
    options->hang_at = *value;
  } else if (name == "devices") {
    *devices = *value;
  } else if (name == "peer_access") {
    options->peers.can_access = options->peers.access_enabled = *value != 0;
  } else if (name == "peer_atomics") {
    options->peers.native_atomics = *value != 0;
  } else {
    return false;
  }
  return true;
}

Result<std::unique_ptr<Accelerator>> Open(const AcceleratorOptions& options) {
  FakeDeviceOptions fake;
  fake.adversarial = false;
  fake.progress = FakeDeviceOptions::Progress::kOnAThread;
  const char* const text = std::getenv("PASSEL_FAKE_GPU");
  std::istringstream words(text == nullptr ? "" : text);
  std::uint64_t devices = 8;
  std::uint64_t opening = 0;
  for (std::string word; words >> word;) {
    if (word.starts_with("opens=")) {
      opening = CountOpening(word.substr(6));
      continue;
    }
    if (opening == 0) opening = CountOpening("");
    bool of_opening = false;
    PASSEL_RETURN_IF_ERROR(FailOpening(word, opening, &of_opening));
    if (of_opening) continue;
    if (const auto leak = Number(word.substr(std::min<std::size_t>(6, word.size())));
        leak && word.starts_with("leaks=")) {
      fake.taken = (*leak * opening) << 20;
      continue;
    }
    if (word == "none") return NotFound("there is no GPU: PASSEL_FAKE_GPU says so");
    if (!Take(word, &fake, &devices)) {
      return InvalidArgument(fmt::format("PASSEL_FAKE_GPU has '{}', which means nothing", word));
    }
  }
  fake.visible = Visible(devices, options.uuid);
  if (fake.visible.empty()) return NotFound("CUDA_VISIBLE_DEVICES leaves no fake GPU");
  fake.uuid = options.uuid.empty() ? fake.visible[0] : options.uuid;
  fake.memory_limit =
      static_cast<std::uint64_t>(options.memory_fraction * static_cast<double>(fake.memory_limit));
  return std::unique_ptr<Accelerator>(
      std::make_unique<FakeAccelerator>(std::make_unique<FakeDevice>(fake)));
}

}  // namespace
}  // namespace passel::cuda

extern "C" __attribute__((visibility("default"))) int passel_accelerator_v1(
    const passel::AcceleratorHost* host, passel::AcceleratorPlugin* plugin) {
  const int refused = passel::AnswerHost(*host, passel::cuda::Open, plugin);
  if (refused == 0) passel::cuda::SetLog(*host);
  return refused;
}

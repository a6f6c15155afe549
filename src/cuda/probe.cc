#include "cuda/probe.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "cuda/error_class.h"

namespace passel::cuda {
namespace {

// Lower case, without "gpu-" or "mig-".
std::string Canonical(std::string_view uuid) {
  std::string text;
  for (const char c : uuid) {
    text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (text.starts_with("gpu-") || text.starts_with("mig-")) text.erase(0, 4);
  return text;
}

// "13.0" for 13000.
std::string VersionText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// The oldest driver release that knows CUDA `major`: "580" for 13; empty if unknown.
std::string OldestDriverFor(int major) {
  if (major == 12) return "525";
  if (major == 13) return "580";
  return "";
}

std::string CapabilityText(int capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

// kUnavailable if asking later may get another answer; else OK.
Status NotYet(const DriverAnswer& answer) {
  if (answer.ok() || ClassOf(answer.error) != ErrorClass::kLater) return {};
  return StatusOfError(answer.error, "the NVIDIA driver gives no GPU yet: " + answer.text);
}

// What is remedied outside of this program.
Status CheckDriver(DriverCalls& driver, int* version) {
  const DriverAnswer answer = driver.DriverVersion(version);
  PASSEL_RETURN_IF_ERROR(NotYet(answer));
  if (!answer.ok()) {
    return FailedPrecondition(fmt::format(
        "the NVIDIA driver does not say its version: {}; check it with nvidia-smi", answer.text));
  }
  if (*version == 0) {
    return NotFound(
        "there is no NVIDIA driver: install one and see that nvidia-smi works (in a container, "
        "start it with the GPU), or use --device cpu");
  }
  const int runtime = driver.RuntimeVersion();
  // Within one major version an older driver runs newer programs.
  if (*version / 1000 < runtime / 1000) {
    const std::string release = driver.DriverRelease();
    const std::string oldest = OldestDriverFor(runtime / 1000);
    return FailedPrecondition(
        fmt::format("the NVIDIA driver{}{} knows CUDA {}, but this build needs CUDA {}{}{}: update "
                    "the driver, or build passel with nvcc {}.x",
                    release.empty() ? "" : " ", release, VersionText(*version), runtime / 1000,
                    oldest.empty() ? "" : ", driver ", oldest.empty() ? "" : oldest + " or newer",
                    *version / 1000));
  }
  return {};
}

Status CheckDevice(const DeviceFacts& facts) {
  if (facts.compute_capability < kMinComputeCapability) {
    return FailedPrecondition(fmt::format(
        "{} ({}) has compute capability {}, but {} or newer is needed: use another GPU, or "
        "--device cpu",
        facts.name, facts.uuid, CapabilityText(facts.compute_capability),
        CapabilityText(kMinComputeCapability)));
  }
  if (facts.prohibited) {
    return FailedPrecondition(
        fmt::format("{} ({}) is in compute mode 'prohibited': have its administrator set it to "
                    "'default' (nvidia-smi -c 0), or use another GPU",
                    facts.name, facts.uuid));
  }
  if (!facts.unified_addressing) {
    return FailedPrecondition(
        fmt::format("{} ({}) does not share one address space with the host, which passel needs: "
                    "use another GPU or driver, or --device cpu",
                    facts.name, facts.uuid));
  }
  return {};
}

// What is missing, and what else can be done.
Status NoPeer(const std::string& own, const std::string& home, const std::string& what) {
  return FailedPrecondition(
      fmt::format("GPU {} {} GPU {}, which holds the parameters: use GPUs with NVLink between "
                  "them, one GPU for "
                  "all workers, or --arena host",
                  own, what, home));
}

}  // namespace

std::string ParseDriverRelease(const std::string& text) {
  // The first word of digits and dots, with a dot: "... Kernel Module  580.159.03  ...".
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find_first_of(" \t\n", at), text.size());
    const std::string_view word = std::string_view(text).substr(at, end - at);
    if (word.find('.') != std::string_view::npos &&
        std::isdigit(static_cast<unsigned char>(word.front())) != 0 &&
        word.find_first_not_of("0123456789.") == std::string_view::npos) {
      return std::string(word);
    }
    at = end + 1;
  }
  return "";
}

Result<ProbedDevice> Probe(DriverCalls& driver, const std::string& uuid) {
  int version = 0;
  PASSEL_RETURN_IF_ERROR(CheckDriver(driver, &version));
  int count = 0;  // stays as it is when the call fails
  const DriverAnswer answer = driver.DeviceCount(&count);
  PASSEL_RETURN_IF_ERROR(NotYet(answer));
  if (!answer.ok() || count <= 0) {
    return NotFound(fmt::format(
        "the NVIDIA driver shows this process no GPU{}{}: look at CUDA_VISIBLE_DEVICES and "
        "nvidia-smi, or use --device cpu",
        answer.ok() ? "" : ": ", answer.text));
  }
  const std::string wanted = Canonical(uuid);
  std::vector<ProbedDevice> found;
  std::string present;
  std::string unreadable;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    ProbedDevice device;
    device.ordinal = ordinal;
    const DriverAnswer facts = driver.Facts(ordinal, &device.facts);
    PASSEL_RETURN_IF_ERROR(NotYet(facts));
    if (!facts.ok()) {
      unreadable = fmt::format(
          "GPU {} of this process does not say what it is: {}; check it with "
          "nvidia-smi, or name another by its UUID",
          ordinal, facts.text);
      if (uuid.empty()) return FailedPrecondition(unreadable);
      continue;
    }
    present += (present.empty() ? "" : ", ") + device.facts.uuid;
    if (Canonical(device.facts.uuid).starts_with(wanted)) found.push_back(std::move(device));
    if (uuid.empty()) break;
  }
  if (found.empty()) {
    return NotFound(fmt::format("this process sees no GPU {}: {}{}{}", uuid,
                                present.empty() ? "none can be read" : "it sees " + present,
                                unreadable.empty() ? "" : "; ", unreadable));
  }
  if (found.size() > 1) {
    return NotFound(fmt::format("the UUID {} fits {} GPUs of {}: write more of it", uuid,
                                found.size(), present));
  }
  ProbedDevice device = std::move(found.front());
  PASSEL_RETURN_IF_ERROR(CheckDevice(device.facts));
  device.info.name = device.facts.name;
  device.info.uuid = device.facts.uuid;
  device.info.compute_capability = device.facts.compute_capability;
  device.info.memory_bytes = device.facts.memory_bytes;
  device.info.mps = device.facts.mps;
  const std::string release = driver.DriverRelease();
  device.info.driver = release.empty() ? fmt::format("CUDA {}", VersionText(version))
                                       : fmt::format("{} (CUDA {})", release, VersionText(version));
  return device;
}

Result<int> ProbePeer(DriverCalls& driver, int own, const std::string& own_uuid,
                      const std::string& home) {
  for (const std::string& uuid : {own_uuid, home}) {
    if (uuid.starts_with("MIG-")) {
      return FailedPrecondition(fmt::format(
          "{} is a MIG instance, from and to which no other GPU's memory can be reached: "
          "use whole GPUs, or --arena host",
          uuid));
    }
  }
  int count = 0;  // stays as it is when the call fails
  const DriverAnswer counted = driver.DeviceCount(&count);
  PASSEL_RETURN_IF_ERROR(NotYet(counted));
  if (!counted.ok()) {
    return FailedPrecondition(fmt::format(
        "the NVIDIA driver does not say which GPUs there are: {}; check it with nvidia-smi",
        counted.text));
  }
  std::string present;
  for (int peer = 0; peer < count; ++peer) {
    DeviceFacts device;
    if (!driver.Facts(peer, &device).ok()) continue;
    present += (present.empty() ? "" : ", ") + device.uuid;
    if (device.uuid != home) continue;
    PeerFacts facts;
    const DriverAnswer answer = driver.Peer(own, peer, &facts);
    if (!answer.ok()) {
      return NoPeer(own_uuid, home, fmt::format("gets no answer ({}) about", answer.text));
    }
    if (!facts.can_access || !facts.access_enabled) {
      return NoPeer(own_uuid, home, "cannot access the memory of");
    }
    if (!facts.native_atomics) {
      return NoPeer(own_uuid, home, "cannot do atomic operations on the memory of");
    }
    return peer;
  }
  return FailedPrecondition(
      fmt::format("GPU {} does not see GPU {}, which holds the parameters (this process sees {}): "
                  "name that one "
                  "too, behind its own, in CUDA_VISIBLE_DEVICES",
                  own_uuid, home, present.empty() ? "none that can be read" : present));
}

}  // namespace passel::cuda

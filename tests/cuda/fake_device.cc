#include "cuda/fake_device.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "cuda/emulator.h"
#include "cuda/fake_device_internal.h"
#include "cuda/gemm_layout.h"
#include "cuda/large_gemm_emulator.h"

namespace passel::cuda {
namespace {

// A range of bytes lies in one of `ranges`.
bool Covered(const std::vector<Bytes>& ranges, const void* begin, std::size_t size) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const Bytes& r) {
    return Address(r.begin) <= Address(begin) && Address(begin) + size <= Address(r.begin) + r.size;
  });
}

// Bytes of a matrix with rows that lie apart.
std::size_t Extent(std::size_t rows, std::size_t cols, std::size_t ld) {
  return ((rows - 1) * ld + cols) * sizeof(float);
}

// The scope of a kernel's atomic operations, of those that have any.
std::optional<Scope> ScopeOf(const AnyKernel& kernel) {
  return std::visit(
      [](const auto& k) -> std::optional<Scope> {
        using Kernel = std::decay_t<decltype(k)>;
        if constexpr (requires { Kernel::kScope; }) return Kernel::kScope;
        return std::nullopt;
      },
      kernel);
}

}  // namespace

FakeDevice::FakeDevice(const FakeDeviceOptions& options)
    : options_(options),
      info_{"Fake GPU",
            options.uuid,
            90,
            options.memory_limit,
            options.memory_limit - std::min(options.taken, options.memory_limit),
            "0.0 (emulated)",
            options.mps},
      random_(options.seed) {
  if (options_.progress == FakeDeviceOptions::Progress::kOnAThread) {
    thread_ = std::thread([this] { Serve(); });
  }
}

FakeDevice::~FakeDevice() {
  {
    const std::unique_lock lock(mutex_);
    quit_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  // What an engine abandoned; those that it gave back are not here.
  queue_.clear();
  const std::set<FakeExecutable*> abandoned = executables_;
  for (FakeExecutable* executable : abandoned) delete executable;
  for (const auto& [begin, region] : regions_) {
    void* const memory = reinterpret_cast<void*>(begin);
    if (region.kind == Deleter::Kind::kShared) {
      ::munmap(memory, region.size);
    } else {
      std::free(memory);
    }
  }
}

bool FakeDevice::IndicesInRange(const GatherKernel& gather) const {
  const Region* labels = Find(gather.labels, 1);
  return std::all_of(gather.indices, gather.indices + gather.batch,
                     [&](std::uint32_t index) { return index < labels->size; });
}

// What another device's threads must see, or change, at the same time. (The report of a push names
// the values to come behind them, and touches none.)
Status FakeDevice::CheckForeign(const Node& node) const {
  const auto* const kernel = std::get_if<AnyKernel>(&node.operation);
  if (kernel != nullptr &&
      (ScopeOf(*kernel) == Scope::kSystem || std::holds_alternative<PushReportKernel>(*kernel))) {
    return {};
  }
  for (const auto* ranges : {&node.reads, &node.writes}) {
    for (const Bytes& r : *ranges) {
      const Region* const region = r.size == 0 ? nullptr : Find(r.begin, r.size);
      if (region != nullptr && region->foreign) {
        return InvalidArgument(fmt::format(
            "operation '{}' touches another device's memory, and is not at system scope",
            node.name));
      }
    }
  }
  return {};
}

Status FakeDevice::CheckNode(const Node& node) const {
  for (const auto* ranges : {&node.reads, &node.writes}) {
    for (const Bytes& r : *ranges) {
      if (r.size != 0 && Find(r.begin, r.size) == nullptr) {
        return InvalidArgument(fmt::format(
            "operation '{}' touches {} bytes that are neither of the device nor pinned nor "
            "registered, or not all",
            node.name, r.size));
      }
    }
  }
  PASSEL_RETURN_IF_ERROR(CheckForeign(node));
  const auto* copy = std::get_if<Copy>(&node.operation);
  if (copy == nullptr || copy->bytes == 0) return {};
  const bool to_host = copy->kind == Copy::Kind::kDeviceToHost;
  const bool from_host = copy->kind == Copy::Kind::kHostToDevice;
  const auto is_host = [&](const void* at) {
    const Region* region = Find(at, copy->bytes);
    return region != nullptr &&
           (region->kind == Deleter::Kind::kPinned || region->kind == Deleter::Kind::kRegistration);
  };
  if (Find(copy->to, copy->bytes) == nullptr || Find(copy->from, copy->bytes) == nullptr ||
      is_host(copy->to) != to_host || is_host(copy->from) != from_host) {
    return InvalidArgument(
        fmt::format("operation '{}' copies in another direction than it says", node.name));
  }
  return {};
}

// A product says all that it reads and writes.
Status FakeDevice::CheckProduct(const Node& node, const LargeGemm& gemm) const {
  if (Status status = LayoutOf(gemm).status(); !status.ok()) return status.WithContext(node.name);
  if (options_.no_library) return NotFound("the fake GPU has no library").WithContext(node.name);
  const std::size_t a =
      gemm.transpose_a ? Extent(gemm.k, gemm.m, gemm.lda) : Extent(gemm.m, gemm.k, gemm.lda);
  const std::size_t b =
      gemm.transpose_b ? Extent(gemm.n, gemm.k, gemm.ldb) : Extent(gemm.k, gemm.n, gemm.ldb);
  const bool all = Covered(node.reads, gemm.a, a) && Covered(node.reads, gemm.b, b) &&
                   (!gemm.has_bias() || Covered(node.reads, gemm.bias, gemm.n * sizeof(float))) &&
                   Covered(node.writes, gemm.c, Extent(gemm.m, gemm.n, gemm.ldc));
  if (all) return {};
  return InvalidArgument(
      fmt::format("operation '{}' does not declare all that its product touches", node.name));
}

Result<Device::Library> FakeDevice::HasLibrary() {
  if (options_.no_library) return Library{false, "the fake GPU has no library: give it one"};
  return Library{true, ""};
}

// All large products of a device work in one memory of the library's.
Status FakeDevice::CheckWorkspace(const Plan& plan) {
  int former = -1;
  for (int number = 0; number < static_cast<int>(plan.nodes().size()); ++number) {
    const Node& node = plan.nodes()[static_cast<std::size_t>(number)];
    if (!std::holds_alternative<LargeGemm>(node.operation)) continue;
    if (former >= 0 && !plan.Waits(number, former)) {
      return InvalidArgument(
          fmt::format("operations '{}' and '{}' may run at the same time in one workspace",
                      plan.nodes()[static_cast<std::size_t>(former)].name, node.name));
    }
    former = number;
  }
  return {};
}

Result<std::unique_ptr<Device::Executable>> FakeDevice::Prepare(const Plan& plan, How how) {
  const std::unique_lock lock(mutex_);
  PASSEL_RETURN_IF_ERROR(error_);
  for (const Node& node : plan.nodes()) {
    PASSEL_RETURN_IF_ERROR(CheckNode(node));
    if (const auto* gemm = std::get_if<LargeGemm>(&node.operation)) {
      PASSEL_RETURN_IF_ERROR(CheckProduct(node, *gemm));
    }
  }
  PASSEL_RETURN_IF_ERROR(CheckWorkspace(plan));
  for (const Node& node : plan.nodes()) {
    const auto* const kernel = std::get_if<AnyKernel>(&node.operation);
    const auto scope = kernel == nullptr ? std::nullopt : ScopeOf(*kernel);
    if (scope) ++kernels_at_[static_cast<std::size_t>(*scope)];
  }
  auto executable = std::make_unique<FakeExecutable>(*this, plan, how);
  executables_.insert(executable.get());
  return std::unique_ptr<Executable>(std::move(executable));
}

Status FakeDevice::Launch(Executable& executable) {
  const std::unique_lock lock(mutex_);
  PASSEL_RETURN_IF_ERROR(error_);
  Launched run;
  run.executable = static_cast<FakeExecutable*>(&executable);
  run.number = launches_++;
  if (options_.crash_at == run.number) std::raise(SIGSEGV);
  run.left = run.executable->nodes().size();
  run.copied.resize(run.left);
  run.done.resize(run.left);
  if (random_.Below(2) == 0) run.laggard = static_cast<int>(random_.Below(run.left));
  queue_.push_back(std::move(run));
  changed_.notify_all();
  return {};
}

bool FakeDevice::Hangs() const {
  return !queue_.empty() && options_.hang_at && queue_.front().number >= *options_.hang_at;
}

void FakeDevice::Begin(Launched& run) {
  run.begun = true;
  if (!options_.adversarial) return;
  const std::vector<Node>& nodes = run.executable->nodes();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const Bytes& w : nodes[i].writes) {
      const Region* region = Find(w.begin, w.size);
      if (region == nullptr || region->kind != Deleter::Kind::kDevice) continue;
      bool read_before = false;
      for (std::size_t j = 0; j <= i; ++j) {
        for (const Bytes& r : nodes[j].reads) {
          read_before |= Overlap(r.begin, r.size, w.begin, w.size);
        }
      }
      if (!read_before) std::memset(const_cast<void*>(w.begin), 0xff, w.size);
    }
  }
}

int FakeDevice::PickReady(const Launched& run) {
  const std::vector<Node>& nodes = run.executable->nodes();
  std::vector<int> ready;
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    if (run.done[static_cast<std::size_t>(i)]) continue;
    if (run.executable->how() == How::kOneByOne || !options_.adversarial) return i;
    const auto& after = nodes[static_cast<std::size_t>(i)].after;
    if (std::all_of(after.begin(), after.end(), [&](int j) {
          return run.done[static_cast<std::size_t>(j)] || options_.forgotten_edges.contains({j, i});
        })) {
      ready.push_back(i);
    }
  }
  if (ready.size() > 1) std::erase(ready, run.laggard);
  return ready[random_.Below(ready.size())];
}

bool FakeDevice::RunPiece(std::unique_lock<std::mutex>& lock) {
  if (queue_.empty() || !error_.ok() || Hangs()) return false;
  Launched& run = queue_.front();
  if (!run.begun) Begin(run);
  const int picked = PickReady(run);
  const auto i = static_cast<std::size_t>(picked);
  const Node& node = run.executable->nodes()[i];
  if (options_.fail_at && *options_.fail_at == std::pair(run.number, picked)) {
    error_ =
        Unavailable(fmt::format("the GPU failed in operation '{}': an injected fault", node.name));
    return false;
  }
  if (const auto* kernel = std::get_if<AnyKernel>(&node.operation)) {
    const auto* gather = std::get_if<GatherKernel>(kernel);
    if (gather != nullptr && !IndicesInRange(*gather)) {
      Violation("a gather was given an index outside the data set");
      error_ = Internal("the GPU failed in operation 'gather': an address out of range");
      return false;
    }
  }
  bool whole = true;
  Random emulator_random(random_.Next());
  if (!options_.left_out.empty() && node.name == options_.left_out) {
    lock.unlock();
  } else if (const auto* copy = std::get_if<Copy>(&node.operation)) {
    const std::size_t rest = copy->bytes - run.copied[i];
    std::size_t now = rest;
    if (options_.adversarial && rest > 4) now = std::min(rest, 4 * (1 + random_.Below(rest / 4)));
    auto* to = static_cast<char*>(copy->to) + run.copied[i];
    const auto* from = static_cast<const char*>(copy->from) + run.copied[i];
    const Region* source = now == 0 ? nullptr : Find(from, now);
    const bool racing =
        source != nullptr && Address(from) % 4 == 0 &&
        (source->kind == Deleter::Kind::kRegistration || source->kind == Deleter::Kind::kShared);
    run.copied[i] += now;
    whole = run.copied[i] == copy->bytes;
    lock.unlock();
    if (racing) {
      CopyRacing(to, from, now);
    } else if (now != 0) {
      std::memcpy(to, from, now);
    }
  } else {
    lock.unlock();
    if (const auto* gemm = std::get_if<LargeGemm>(&node.operation)) {
      EmulateLargeGemm(*gemm);
    } else {
      Emulate(std::get<AnyKernel>(node.operation),
              options_.adversarial ? &emulator_random : nullptr);
    }
  }
  lock.lock();
  if (whole && !queue_.empty()) {
    run.done[i] = true;
    if (--run.left == 0) queue_.pop_front();
  }
  return true;
}

Status FakeDevice::Health() {
  std::unique_lock lock(mutex_);
  if (options_.progress == FakeDeviceOptions::Progress::kLazily) {
    const std::uint64_t pieces = options_.adversarial ? random_.Below(5) : 1000;
    for (std::uint64_t i = 0; i < pieces && RunPiece(lock); ++i) {
    }
  }
  return error_;
}

Status FakeDevice::Synchronize(Deadline deadline) {
  std::unique_lock lock(mutex_);
  while (error_.ok() && !queue_.empty()) {
    if (Hangs() || deadline.Expired()) {
      return DeadlineExceeded("the fake GPU is not done with what was launched");
    }
    if (options_.progress == FakeDeviceOptions::Progress::kLazily) {
      RunPiece(lock);
    } else {
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
  }
  return error_;
}

void FakeDevice::Serve() {
  std::unique_lock lock(mutex_);
  while (!quit_) {
    if (!RunPiece(lock)) changed_.wait_for(lock, std::chrono::milliseconds(50));
  }
}

void FakeDevice::Violation(std::string sentence) { violations_.push_back(std::move(sentence)); }

std::vector<std::string> FakeDevice::violations() const {
  const std::unique_lock lock(mutex_);
  return violations_;
}

bool FakeDevice::idle() const {
  const std::unique_lock lock(mutex_);
  return queue_.empty() || !error_.ok();
}

}  // namespace passel::cuda

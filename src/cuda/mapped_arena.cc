#include "cuda/mapped_arena.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "cuda/arena_layout.h"
#include "cuda/far_memory.h"
#include "cuda/plan.h"
#include "cuda/sign.h"

namespace passel::cuda {
namespace {

// Enough for a holder that runs to be done with a few blocks, and little beside a launch.
constexpr std::uint32_t kTries = 16;
constexpr unsigned kLooksPerHealth = 500;
constexpr std::chrono::seconds kHeaderLimit{60};  // for reading it: the GPU may be busy

class MappedArena final : public DeviceArena {
 public:
  MappedArena(Device& device, const DeviceArenaShape& shape)
      : device_(device),
        shape_(shape),
        remote_(!shape.home.empty() && shape.home != device.info().uuid),
        places_(ArenaPlaces(shape, &bytes_)),
        far_(device),
        pushes_(shape.shards.size()) {}

  ~MappedArena() override {
    if (hangs_) Abandon();
    if ((launches_ == 0 && !far_.launched()) || !lost_.ok()) return;
    // The last operation of a launch ends after its sign.
    const Status done = device_.Synchronize(Deadline::After(kTearDownLimit));
    if (done.code() == Code::kDeadlineExceeded) Abandon();
  }

  Status Create() {
    PASSEL_CHECK(!remote_, "who creates the arena has it in the memory of its own GPU");
    PASSEL_ASSIGN_OR_RETURN(memory_, device_.CreateShared(bytes_, &fd_));
    const ArenaHeader header = HeaderOf(shape_, bytes_);
    PASSEL_RETURN_IF_ERROR(device_.CopyIn(memory_.get(), &header, sizeof header));
    return Prepare();
  }

  Status Import(int fd) {
    PASSEL_ASSIGN_OR_RETURN(memory_, device_.ImportShared(fd, bytes_, shape_.home));
    if (remote_) PASSEL_RETURN_IF_ERROR(ReserveFar());
    ArenaHeader header{};
    PASSEL_RETURN_IF_ERROR(
        CopyOut(&header, memory_.get(), sizeof header, Deadline::After(kHeaderLimit)));
    PASSEL_RETURN_IF_ERROR(CheckHeader(header, HeaderOf(shape_, bytes_)));
    PASSEL_CHECK(!remote_ || shape_.several_gpus, "a GPU and the arena's are several");
    return Prepare();
  }

  int fd() const override { return fd_.get(); }
  bool remote() const override { return remote_; }
  bool several_gpus() const override { return shape_.several_gpus; }
  float* values(int shard) const override { return Array(shard, 0); }
  float* gradient(int shard, int slot) const override {
    return gradients_[Index(shard)][Index(slot)];
  }
  int gradient_slots() const override { return shape_.gradient_slots; }

  Status Write(int shard, int array, const float* from) override {
    PASSEL_CHECK(!remote_, "another GPU's memory is written by pushes alone");
    return device_.CopyIn(Array(shard, array), from, FloatBytes(shard));
  }
  Status Read(int shard, int array, float* to, Deadline deadline) override {
    PASSEL_RETURN_IF_ERROR(Idle(deadline));
    return CopyOut(to, Array(shard, array), FloatBytes(shard), deadline);
  }
  Status WriteGradient(int shard, int slot, const float* from) override {
    return device_.CopyIn(gradient(shard, slot), from, FloatBytes(shard));
  }
  Status ReadGradient(int shard, int slot, float* to, Deadline deadline) override {
    PASSEL_RETURN_IF_ERROR(Idle(deadline));
    return device_.CopyOut(to, gradient(shard, slot), FloatBytes(shard));
  }

  Result<BlocksSwept> Apply(const Push& push, Deadline deadline) override {
    PASSEL_RETURN_IF_ERROR(lost_);
    if (FloatBytes(push.shard) == 0) return BlocksSwept{};
    PASSEL_CHECK(push.first_block < places_[Index(push.shard)].blocks, "a block of this shard");
    PASSEL_ASSIGN_OR_RETURN(Launcher * launcher, LauncherFor(push));
    PushOrder& order = *launcher->order;
    // The shard's own count: another shard's push may lie between the launches of one.
    std::uint64_t& pushes = pushes_[Index(push.shard)];
    order.number = ++launches_;
    order.push = push.goes_on ? pushes : ++pushes;
    order.claim = push.claim;
    // Where a kernel may outlive its process, one that died may still be updating its blocks.
    order.former = device_.info().mps ? 0 : push.former;
    order.first_block = static_cast<std::uint32_t>(push.first_block);
    order.tries = kTries;
    order.scalars = *push.scalars;
    Status status = device_.Launch(*launcher->executable);
    if (status.ok()) {
      status =
          AwaitSign(device_, &launcher->report->number, order.number,
                    fmt::format("push {} of this worker", order.push), kLooksPerHealth, deadline);
    }
    if (status.code() == Code::kDeadlineExceeded) {
      hangs_ = true;
      status = Unavailable(status.message());
    }
    if (!status.ok()) return lost_ = status;
    return BlocksSwept{launcher->report->left, launcher->report->taken_over,
                       launcher->report->holder};
  }

 private:
  // What hands in one gradient slot of one shard, in one way.
  struct Launcher {
    Device::Memory pinned_order, pinned_report, device_order;
    PushOrder* order = nullptr;
    PushReport* report = nullptr;
    std::unique_ptr<Device::Executable> executable;
  };
  using Way = std::tuple<int, int, bool, UpdateRule>;  // shard, slot, claims

  static std::size_t Index(int i) { return static_cast<std::size_t>(i); }
  std::size_t FloatBytes(int shard) const {
    return shape_.shards[Index(shard)].floats * sizeof(float);
  }
  template <typename T>
  T* At(std::size_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(memory_.get()) + offset);
  }
  float* Array(int shard, int array) const {
    return At<float>(places_[Index(shard)].arrays[Index(array)]);
  }
  // Copies from the arena, wherever it is.
  Status CopyOut(void* to_host, const void* from, std::size_t bytes, Deadline deadline) {
    return remote_ ? far_.Read(to_host, from, bytes, deadline)
                   : device_.CopyOut(to_host, from, bytes);
  }
  Status ReserveFar() {
    std::size_t most = sizeof(ArenaHeader);
    for (int s = 0; s < static_cast<int>(shape_.shards.size()); ++s) {
      most = std::max(most, FloatBytes(s));
    }
    return far_.Reserve(most);
  }
  // Steps that are under way end first.
  Status Idle(Deadline deadline) {
    PASSEL_RETURN_IF_ERROR(lost_);
    return device_.Synchronize(deadline);
  }

  template <typename T>
  Result<T*> Allocate(std::size_t count) {
    PASSEL_ASSIGN_OR_RETURN(Device::Memory memory,
                            device_.Allocate(std::max<std::size_t>(count, 1) * sizeof(T)));
    T* const data = static_cast<T*>(memory.get());
    owned_.push_back(std::move(memory));
    return data;
  }

  Status Prepare() {
    for (std::size_t s = 0; s < places_.size(); ++s) {
      auto& slots = gradients_.emplace_back();
      for (int slot = 0; slot < shape_.gradient_slots; ++slot) {
        PASSEL_ASSIGN_OR_RETURN(float* gradient, Allocate<float>(shape_.shards[s].floats));
        slots.push_back(gradient);
      }
      PASSEL_ASSIGN_OR_RETURN(std::uint64_t * done, Allocate<std::uint64_t>(places_[s].blocks));
      PASSEL_ASSIGN_OR_RETURN(std::uint64_t * outcome, Allocate<std::uint64_t>(places_[s].blocks));
      done_.push_back(done);
      outcome_.push_back(outcome);
    }
    return {};
  }

  Result<Launcher*> LauncherFor(const Push& push) {
    const Way way{push.shard, push.gradient_slot, push.claims, push.scalars->rule};
    const auto found = launchers_.find(way);
    if (found != launchers_.end()) return &found->second;
    Launcher launcher;
    PASSEL_ASSIGN_OR_RETURN(launcher.pinned_order, device_.AllocatePinned(sizeof(PushOrder)));
    PASSEL_ASSIGN_OR_RETURN(launcher.pinned_report, device_.AllocatePinned(sizeof(PushReport)));
    PASSEL_ASSIGN_OR_RETURN(launcher.device_order, device_.Allocate(sizeof(PushOrder)));
    launcher.order = new (launcher.pinned_order.get()) PushOrder{};
    launcher.report = new (launcher.pinned_report.get()) PushReport{};
    const Plan plan = MakePlan(push, launcher);
    PASSEL_ASSIGN_OR_RETURN(launcher.executable, device_.Prepare(plan, Device::How::kGraph));
    return &launchers_.emplace(way, std::move(launcher)).first->second;
  }

  Plan MakePlan(const Push& push, const Launcher& launcher) const {
    const ArenaPlace& place = places_[Index(push.shard)];
    const auto* order = static_cast<const PushOrder*>(launcher.device_order.get());
    const Bytes order_bytes{order, sizeof(PushOrder)};
    Plan plan;
    plan.Add("copy push order",
             Copy{Copy::Kind::kHostToDevice, launcher.device_order.get(), launcher.order,
                  sizeof(PushOrder)},
             {{launcher.order, sizeof(PushOrder)}}, {order_bytes});
    const std::size_t bytes = FloatBytes(push.shard);
    const float* gradient = this->gradient(push.shard, push.gradient_slot);
    std::vector<Bytes> changed;
    for (int array = 0; array <= shape_.slots; ++array) {
      changed.push_back({Array(push.shard, array), bytes});
    }
    PushReportKernel report;
    report.order = order;
    report.report = launcher.report;
    const std::size_t words = place.blocks * sizeof(std::uint64_t);
    if (push.claims) {
      changed.push_back({At<BlockClaim>(place.claims), place.blocks * sizeof(BlockClaim)});
      changed.push_back({done_[Index(push.shard)], words});
    }
    std::vector<Bytes> reads = changed;
    reads.push_back(order_bytes);
    reads.push_back({gradient, bytes});
    if (push.claims) {
      changed.push_back({outcome_[Index(push.shard)], words});
      report.outcome = outcome_[Index(push.shard)];
      report.blocks = static_cast<std::uint32_t>(place.blocks);
    }
    plan.Add("apply", push.claims ? ClaimedKernel(push, order) : AtomicKernel(push, order),
             std::move(reads), changed);
    std::vector<Bytes> reported{order_bytes};
    // The values too: they are changed before the sign is given.
    reported.insert(reported.end(), changed.begin(), changed.end());
    plan.Add("push report", AnyKernel(report), std::move(reported),
             {{launcher.report, sizeof(PushReport)}});
    return plan;
  }

  AnyKernel AtomicKernel(const Push& push, const PushOrder* order) const {
    const auto filled = [&](auto kernel) {
      kernel.scalars = &order->scalars;
      kernel.values = Array(push.shard, 0);
      kernel.gradient = gradient(push.shard, push.gradient_slot);
      kernel.count = shape_.shards[Index(push.shard)].floats;
      return AnyKernel(kernel);
    };
    return shape_.several_gpus ? filled(AtomicSgdKernel<Scope::kSystem>())
                               : filled(AtomicSgdKernel<Scope::kGpu>());
  }

  AnyKernel ClaimedKernel(const Push& push, const PushOrder* order) const {
    AnyKernel kernel;
    const bool known = UpdateRules::With(
        push.scalars->rule, [&]<typename Rule>() { kernel = Claimed<Rule>(push, order); });
    PASSEL_CHECK(known, "the scalars are not of Prepare()");
    return kernel;
  }
  template <typename Rule>
  AnyKernel Claimed(const Push& push, const PushOrder* order) const {
    PASSEL_CHECK(Rule::kSlots == shape_.slots, "the arena has the slots of this optimizer");
    return shape_.several_gpus ? Claimed(ClaimedUpdate<Rule, Scope::kSystem>(), push, order)
                               : Claimed(ClaimedUpdate<Rule, Scope::kGpu>(), push, order);
  }
  template <typename Rule, Scope kScope>
  AnyKernel Claimed(ClaimedUpdate<Rule, kScope> kernel, const Push& push,
                    const PushOrder* order) const {
    kernel.order = order;
    kernel.values = Array(push.shard, 0);
    for (int s = 0; s < Rule::kSlots; ++s) kernel.slots[s] = Array(push.shard, 1 + s);
    kernel.gradient = gradient(push.shard, push.gradient_slot);
    const ArenaPlace& place = places_[Index(push.shard)];
    kernel.claims = At<BlockClaim>(place.claims);
    kernel.done = done_[Index(push.shard)];
    kernel.outcome = outcome_[Index(push.shard)];
    kernel.count = shape_.shards[Index(push.shard)].floats;
    kernel.block_floats = static_cast<std::uint32_t>(shape_.shards[Index(push.shard)].block_floats);
    kernel.blocks = static_cast<std::uint32_t>(place.blocks);
    return kernel;
  }

  // The device may still write to all of it. The process is about to end.
  void Abandon() {
    for (auto& [way, launcher] : launchers_) {
      static_cast<void>(launcher.executable.release());
      for (auto* memory :
           {&launcher.pinned_order, &launcher.pinned_report, &launcher.device_order}) {
        static_cast<void>(memory->release());
      }
    }
    for (Device::Memory& memory : owned_) static_cast<void>(memory.release());
    far_.Abandon();
    static_cast<void>(memory_.release());
  }

  Device& device_;
  const DeviceArenaShape shape_;
  const bool remote_;
  std::size_t bytes_ = 0;
  const std::vector<ArenaPlace> places_;
  FileDescriptor fd_;

  // Given back from the last to the first: executables before what they name.
  Device::Memory memory_;
  FarReader far_;  // what a remote arena is read with
  std::vector<Device::Memory> owned_;
  std::map<Way, Launcher> launchers_;

  std::vector<std::vector<float*>> gradients_;  // [shard][slot]
  std::vector<std::uint64_t*> done_;            // [shard], (blocks)
  std::vector<std::uint64_t*> outcome_;         // [shard], (blocks)
  std::uint64_t launches_ = 0;
  std::vector<std::uint64_t> pushes_;  // [shard]
  bool hangs_ = false;
  Status lost_;
};

}  // namespace

Result<std::unique_ptr<DeviceArena>> CreateMappedArena(Device& device,
                                                       const DeviceArenaShape& shape) {
  auto arena = std::make_unique<MappedArena>(device, shape);
  PASSEL_RETURN_IF_ERROR(arena->Create());
  return std::unique_ptr<DeviceArena>(std::move(arena));
}

Result<std::unique_ptr<DeviceArena>> ImportMappedArena(Device& device, int fd,
                                                       const DeviceArenaShape& shape) {
  auto arena = std::make_unique<MappedArena>(device, shape);
  PASSEL_RETURN_IF_ERROR(arena->Import(fd));
  return std::unique_ptr<DeviceArena>(std::move(arena));
}

}  // namespace passel::cuda

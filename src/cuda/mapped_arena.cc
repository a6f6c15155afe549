#include "cuda/mapped_arena.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "cuda/plan.h"
#include "cuda/sign.h"

namespace passel::cuda {
namespace {

// Enough for a holder that runs to be done with a few blocks, and little beside a launch.
constexpr std::uint32_t kTries = 16;
constexpr unsigned kLooksPerHealth = 500;
constexpr std::chrono::seconds kTearDownLimit{10};
constexpr std::size_t kAlignment = 256;  // of arrays, in bytes
constexpr std::size_t kHeaderBytes = 4096;

// Any change of the layout must change `kLayout`.
struct Header {
  static constexpr char kMagic[8] = {'p', 's', 'l', '.', 'g', 'p', 'u', '\0'};
  static constexpr std::uint32_t kLayout = 1;
  char magic[8];
  std::uint32_t layout;
  std::uint32_t shards;
  std::uint64_t id;
  std::uint64_t plan_hash;
  std::uint64_t bytes;
};
static_assert(sizeof(Header) <= kHeaderBytes);

std::size_t Align(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Where the parts of a shard begin, in bytes of the arena.
struct Place {
  std::size_t blocks = 0;
  std::size_t claims = 0;
  std::vector<std::size_t> arrays;  // values, slot variables
};

std::vector<Place> Places(const DeviceArenaShape& shape, std::size_t* bytes) {
  std::vector<Place> places;
  std::size_t next = kHeaderBytes;
  for (const DeviceArenaShape::Shard& shard : shape.shards) {
    PASSEL_CHECK(shard.block_floats > 0 && shard.block_floats % 16 == 0,
                 "a block is a multiple of 16 floats");
    Place place;
    place.blocks = (shard.floats + shard.block_floats - 1) / shard.block_floats;
    place.claims = next;
    next = Align(next + place.blocks * sizeof(BlockClaim));
    for (int array = 0; array <= shape.slots; ++array) {
      place.arrays.push_back(next);
      next = Align(next + shard.floats * sizeof(float));
    }
    places.push_back(std::move(place));
  }
  *bytes = next;
  return places;
}

Header HeaderOf(const DeviceArenaShape& shape, std::size_t bytes) {
  Header header{};
  std::memcpy(header.magic, Header::kMagic, sizeof header.magic);
  header.layout = Header::kLayout;
  header.shards = static_cast<std::uint32_t>(shape.shards.size());
  header.id = shape.id;
  header.plan_hash = shape.plan_hash;
  header.bytes = bytes;
  return header;
}

class MappedArena final : public DeviceArena {
 public:
  MappedArena(Device& device, const DeviceArenaShape& shape)
      : device_(device),
        shape_(shape),
        places_(Places(shape, &bytes_)),
        pushes_(shape.shards.size()) {}

  ~MappedArena() override {
    if (hangs_) Abandon();
    if (launches_ == 0 || !lost_.ok()) return;
    // The last operation of a launch ends after its sign.
    const Status done = device_.Synchronize(Deadline::After(kTearDownLimit));
    if (done.code() == Code::kDeadlineExceeded) Abandon();
  }

  Status Create() {
    PASSEL_ASSIGN_OR_RETURN(memory_, device_.CreateShared(bytes_, &fd_));
    const Header header = HeaderOf(shape_, bytes_);
    PASSEL_RETURN_IF_ERROR(device_.CopyIn(memory_.get(), &header, sizeof header));
    return Prepare();
  }

  Status Import(int fd) {
    PASSEL_ASSIGN_OR_RETURN(memory_, device_.ImportShared(fd, bytes_));
    Header header{};
    PASSEL_RETURN_IF_ERROR(device_.CopyOut(&header, memory_.get(), sizeof header));
    const Header mine = HeaderOf(shape_, bytes_);
    if (std::memcmp(header.magic, mine.magic, sizeof mine.magic) != 0) {
      return DataLoss("what was handed over as the arena on the GPU is none");
    }
    if (header.layout != mine.layout || header.plan_hash != mine.plan_hash ||
        header.shards != mine.shards || header.bytes != mine.bytes) {
      return DataLoss(fmt::format(
          "the arena on the GPU has layout {}, plan {:016x} and {} bytes, this task has layout {}, "
          "plan {:016x} and {} bytes: start all tasks with the same flags, from the same build",
          header.layout, header.plan_hash, header.bytes, mine.layout, mine.plan_hash, mine.bytes));
    }
    if (header.id != mine.id) {
      return DataLoss(fmt::format("the arena on the GPU is number {:016x}, the job's is {:016x}",
                                  header.id, mine.id));
    }
    return Prepare();
  }

  int fd() const override { return fd_.get(); }
  const float* values(int shard) const override { return Array(shard, 0); }
  float* gradient(int shard, int slot) const override {
    return gradients_[Index(shard)][Index(slot)];
  }
  int gradient_slots() const override { return shape_.gradient_slots; }

  Status Write(int shard, int array, const float* from) override {
    return device_.CopyIn(Array(shard, array), from, FloatBytes(shard));
  }
  Status Read(int shard, int array, float* to, Deadline deadline) override {
    PASSEL_RETURN_IF_ERROR(Idle(deadline));
    return device_.CopyOut(to, Array(shard, array), FloatBytes(shard));
  }
  Status WriteGradient(int shard, int slot, const float* from) override {
    return device_.CopyIn(gradient(shard, slot), from, FloatBytes(shard));
  }
  Status ReadGradient(int shard, int slot, float* to, Deadline deadline) override {
    PASSEL_RETURN_IF_ERROR(Idle(deadline));
    return device_.CopyOut(to, gradient(shard, slot), FloatBytes(shard));
  }

  Result<Pushed> Apply(const Push& push, Deadline deadline) override {
    PASSEL_RETURN_IF_ERROR(lost_);
    if (FloatBytes(push.shard) == 0) return Pushed{};
    PASSEL_CHECK(push.first_block < places_[Index(push.shard)].blocks, "a block of this shard");
    PASSEL_ASSIGN_OR_RETURN(Launcher * launcher, LauncherFor(push));
    PushOrder& order = *launcher->order;
    // Of the shard's own: another shard's push may lie between the launches of one.
    std::uint64_t& pushes = pushes_[Index(push.shard)];
    order.number = ++launches_;
    order.push = push.goes_on ? pushes : ++pushes;
    order.claim = push.claim;
    order.former = push.former;
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
    return Pushed{launcher->report->left, launcher->report->taken_over, launcher->report->holder};
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
    const Place& place = places_[Index(push.shard)];
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
    std::vector<Bytes> reported{order_bytes};
    if (push.claims) {
      const std::size_t words = place.blocks * sizeof(std::uint64_t);
      const Bytes done{done_[Index(push.shard)], words};
      const Bytes outcome{outcome_[Index(push.shard)], words};
      changed.push_back({At<BlockClaim>(place.claims), place.blocks * sizeof(BlockClaim)});
      changed.push_back(done);
      std::vector<Bytes> reads = changed;
      reads.push_back(order_bytes);
      reads.push_back({gradient, bytes});
      changed.push_back(outcome);
      plan.Add("apply", ClaimedKernel(push, order), std::move(reads), changed);
      report.outcome = outcome_[Index(push.shard)];
      report.blocks = static_cast<std::uint32_t>(place.blocks);
    } else {
      AtomicSgdKernel kernel;
      kernel.scalars = &order->scalars;
      kernel.values = Array(push.shard, 0);
      kernel.gradient = gradient;
      kernel.count = bytes / sizeof(float);
      std::vector<Bytes> reads = changed;
      reads.push_back(order_bytes);
      reads.push_back({gradient, bytes});
      plan.Add("apply", AnyKernel(kernel), std::move(reads), changed);
    }
    // The values too: they are changed before the sign is given.
    reported.insert(reported.end(), changed.begin(), changed.end());
    plan.Add("push report", AnyKernel(report), std::move(reported),
             {{launcher.report, sizeof(PushReport)}});
    return plan;
  }

  AnyKernel ClaimedKernel(const Push& push, const PushOrder* order) const {
    switch (push.scalars->rule) {
      case UpdateRule::kSgd:
        return Claimed<SgdRule>(push, order);
      case UpdateRule::kMomentum:
        return Claimed<MomentumRule>(push, order);
      case UpdateRule::kNesterov:
        return Claimed<NesterovRule>(push, order);
      case UpdateRule::kAdagrad:
        return Claimed<AdagradRule>(push, order);
      case UpdateRule::kRmsProp:
        return Claimed<RmsPropRule>(push, order);
      case UpdateRule::kCenteredRmsProp:
        return Claimed<CenteredRmsPropRule>(push, order);
      case UpdateRule::kAdam:
        return Claimed<AdamRule>(push, order);
      case UpdateRule::kFtrl:
        return Claimed<FtrlRule>(push, order);
      case UpdateRule::kFtrlPower:
        break;
    }
    return Claimed<FtrlPowerRule>(push, order);
  }
  template <typename Rule>
  AnyKernel Claimed(const Push& push, const PushOrder* order) const {
    PASSEL_CHECK(Rule::kSlots == shape_.slots, "the arena has the slots of this optimizer");
    ClaimedUpdate<Rule> kernel;
    kernel.order = order;
    kernel.values = Array(push.shard, 0);
    for (int s = 0; s < Rule::kSlots; ++s) kernel.slots[s] = Array(push.shard, 1 + s);
    kernel.gradient = gradient(push.shard, push.gradient_slot);
    const Place& place = places_[Index(push.shard)];
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
    static_cast<void>(memory_.release());
  }

  Device& device_;
  const DeviceArenaShape shape_;
  std::size_t bytes_ = 0;
  const std::vector<Place> places_;
  FileDescriptor fd_;

  // Given back from the last to the first: executables before what they name.
  Device::Memory memory_;
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

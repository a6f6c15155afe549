#include "job/device_parameters.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/nvtx.h"
#include "store/block_claims.h"
#include "store/shadow.h"

namespace passel::job {
namespace {

constexpr std::chrono::milliseconds kLookEvery{10};
constexpr std::chrono::seconds kOfferEvery{1};
constexpr std::chrono::seconds kTendLimit{1};

std::string KeyOf(std::uint64_t id) { return fmt::format("arena on the GPU {:016x}", id); }

std::uint64_t NewId() {
  std::uint64_t id = 0;
  while (id == 0) {
    if (::getrandom(&id, sizeof id, 0) != sizeof id) id = static_cast<std::uint64_t>(MonotonicNs());
  }
  return id;
}

}  // namespace

class DeviceParameters::ArenaSweep final : public ExternalSweep {
 public:
  ArenaSweep(DeviceParameters& owner, int shard) : owner_(owner), shard_(shard) {}

  bool Current() const override {
    // Relaxed: set once, before this worker began; another number says that it came too late.
    return owner_.state().arena.load(std::memory_order_relaxed) == owner_.id_;
  }

  Result<BlocksSwept> Sweep(const BlockSweep& sweep, Deadline deadline) override;

 private:
  DeviceParameters& owner_;
  const int shard_;
};

Result<BlocksSwept> DeviceParameters::ArenaSweep::Sweep(const BlockSweep& sweep,
                                                        Deadline deadline) {
  Result<BlocksSwept> swept = owner_.arena_->Apply({sweep, shard_}, deadline);
  if (!swept.ok()) {
    // Relaxed: ours alone to write.
    const auto steps = owner_.store_.counters().local_steps.load(std::memory_order_relaxed);
    nvtx::Mark(nvtx::Event::kDeviceFailed, static_cast<std::int64_t>(steps) + 1);
  }
  return swept;
}

DeviceParameters::DeviceParameters(const DeviceParametersOptions& options, Accelerator& accelerator,
                                   shm::AttachedJob& job, ParameterStore& store)
    : options_(options),
      accelerator_(accelerator),
      job_(job),
      store_(store),
      epoch_(store.membership()[static_cast<std::size_t>(options.worker)].epoch),
      watch_(job.arena(0).memory(), {.stall_limit = options.stall_limit,
                                     .on_stall = options.on_stall,
                                     .names = options.names}) {}

DeviceParameters::~DeviceParameters() = default;

DeviceArenaShape DeviceParameters::Shape(std::uint64_t id, const std::string& home) const {
  DeviceArenaShape shape;
  for (int s = 0; s < shards(); ++s) {
    shape.shards.push_back({Memory(s).floats, Memory(s).block_floats});
  }
  shape.slots = Memory(0).num_slots;
  shape.gradient_slots = Memory(0).gradient_slots;
  shape.id = id;
  shape.plan_hash = job_.arena(0).plan().Hash();
  shape.several_gpus = options_.several_gpus;
  shape.home = home;
  return shape;
}

Result<std::unique_ptr<DeviceParameters>> DeviceParameters::Open(
    const DeviceParametersOptions& options, Accelerator& accelerator, shm::AttachedJob& job,
    ParameterStore& store) {
  std::unique_ptr<DeviceParameters> made(new DeviceParameters(options, accelerator, job, store));
  const bool again = made->state().arena.load(std::memory_order_acquire) != 0;
  if (options.chief && !again) {
    PASSEL_RETURN_IF_ERROR(made->Create());
  } else {
    PASSEL_RETURN_IF_ERROR(made->Import(again));
  }
  std::vector<ExternalSweep*> sweeps;
  for (int s = 0; s < made->shards(); ++s) {
    made->sweeps_.push_back(std::make_unique<ArenaSweep>(*made, s));
    sweeps.push_back(made->sweeps_.back().get());
  }
  store.SweepElsewhere(sweeps);
  return made;
}

// The GPU of the arena, as the chief has named it.
std::string DeviceParameters::Home() const {
  char home[sizeof(std::uint64_t) * DeviceState::kNameWords + 1] = {};
  for (int i = 0; i < DeviceState::kNameWords; ++i) {
    const std::uint64_t word = state().device[i].load(std::memory_order_relaxed);
    std::memcpy(home + i * 8, &word, 8);
  }
  return home;
}

// Whether this GPU reaches another one's memory is for ImportArena() to say. But everybody must
// know beforehand that there are several.
Status DeviceParameters::CheckHome(const std::string& home) const {
  const std::string& here = accelerator_.info().uuid;
  if (here == home || options_.several_gpus) return {};
  return InvalidArgument(fmt::format(
      "{} computes on GPU {}, but the parameters are in the memory of {}: with --arena device all "
      "workers use one GPU, or all are started with --num_gpus 2 or more; give them the same one, "
      "or use --arena host",
      options_.names(options_.worker), here, home));
}

bool DeviceParameters::NothingPushedYet() const {
  for (int s = 0; s < shards(); ++s) {
    if (Memory(s).state->optimizer_step.load(std::memory_order_acquire) != 0) return false;
  }
  return true;
}

Status DeviceParameters::Create() {
  id_ = NewId();
  PASSEL_ASSIGN_OR_RETURN(arena_, accelerator_.CreateArena(Shape(id_, "")));
  for (int s = 0; s < shards(); ++s) {
    const ShardMemory& memory = Memory(s);
    PASSEL_RETURN_IF_ERROR(arena_->Write(s, 0, memory.values));
    for (int slot = 0; slot < memory.num_slots; ++slot) {
      PASSEL_RETURN_IF_ERROR(arena_->Write(s, 1 + slot, memory.slots[slot]));
    }
  }
  char name[sizeof(std::uint64_t) * DeviceState::kNameWords] = {};
  const std::string& uuid = accelerator_.info().uuid;
  std::memcpy(name, uuid.data(), std::min(uuid.size(), sizeof name));
  for (int i = 0; i < DeviceState::kNameWords; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, name + i * 8, 8);
    state().device[i].store(word, std::memory_order_relaxed);
  }
  const std::int64_t step = store_.global_step();  // of a checkpoint, or 0
  PublishShadow(Memory(0), step, step);
  // Release: who sees the number sees the name of the GPU.
  state().arena.store(id_, std::memory_order_release);
  Failpoint("arena.named");
  FileDescriptor kept(::fcntl(arena_->fd(), F_DUPFD_CLOEXEC, 0));
  if (!kept.valid()) return ErrnoStatus(errno, "cannot keep the descriptor of the GPU's memory");
  job_.KeepOffering(KeyOf(id_), std::move(kept));
  return {};
}

// `again`: the job had its arena before this worker came, so that somebody should have it.
Status DeviceParameters::Import(bool again) {
  const std::int64_t begin = MonotonicNs();
  const Deadline start = Deadline::After(options_.start_wait);
  const Deadline offer = Deadline::After(options_.offer_limit);
  for (;;) {
    id_ = state().arena.load(std::memory_order_acquire);
    if (id_ != 0) {
      const std::string home = Home();
      PASSEL_RETURN_IF_ERROR(CheckHome(home));
      Result<std::optional<FileDescriptor>> fd = job_.GetData(KeyOf(id_));
      if (!fd.ok() && fd.status().code() != Code::kUnavailable) return fd.status();
      if (fd.ok() && fd->has_value()) {
        Result<std::unique_ptr<DeviceArena>> arena =
            accelerator_.ImportArena((*fd)->get(), Shape(id_, home));
        if (!arena.ok()) return arena.status().WithContext(options_.names(options_.worker));
        arena_ = std::move(*arena);
        job_.KeepOffering(KeyOf(id_), std::move(**fd));
        return {};
      }
      // A chief that died between naming the arena and offering it, before anybody used it.
      if (options_.chief && again && NothingPushedYet()) return Create();
      job_.OfferAgain();  // finds a ps that came back
    }
    if (store_.stopped()) return Cancelled("the job was stopped before its parameters were there");
    if (again && offer.Expired()) {
      return Unavailable(fmt::format(
          "the parameters in the memory of the GPU are lost: ps/0 and every worker that had them "
          "ended within {:.1f} s; start the job again{}, or use --arena host, which a ps survives",
          1e-9 * static_cast<double>(MonotonicNs() - begin),
          options_.has_checkpoints ? ", which goes on from its newest checkpoint" : ""));
    }
    if (start.Expired()) {
      return DeadlineExceeded(fmt::format(
          "the chief, {}, has not put the parameters into the memory of the GPU within {:g} s: "
          "look at its log, or raise --start_wait",
          options_.names.chief_name, 1e-9 * static_cast<double>(options_.start_wait.count())));
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

std::int64_t DeviceParameters::ShadowAge() const {
  // Relaxed: an age. The claim orders who refreshes.
  return MonotonicNs() - state().shadow_ns.load(std::memory_order_relaxed);
}

bool DeviceParameters::ShadowIsDue() const {
  return ShadowAge() >= options_.shadow_interval.count() || ShadowIsWanted(Memory(0));
}

Status DeviceParameters::Tend() {
  const std::int64_t now = MonotonicNs();
  if (now >= next_offer_ns_) {
    next_offer_ns_ = now + std::chrono::nanoseconds(kOfferEvery).count();
    job_.OfferAgain();
  }
  if (!ShadowIsDue()) return {};
  BlockState& block = Memory(0).blocks[0];
  // What a dead worker has left half done has to be done whatever the age.
  const bool takes_over = TryTakeOver(Memory(0), block, MyClaim());
  if (!takes_over && !TryClaim(block, MyClaim())) {
    watch_.LookAfterHolder(block);  // somebody else is at it, for all of us
    return watch_.failure();
  }
  Status refreshed;
  if (takes_over || ShadowIsDue()) {
    Failpoint("shadow.claimed");
    refreshed = CopyToShadow(Deadline::After(kTendLimit));
  }
  ReleaseClaim(block, MyClaim());
  // A step takes long: later.
  return refreshed.code() == Code::kDeadlineExceeded ? Status() : refreshed;
}

Status DeviceParameters::RefreshShadow(Deadline deadline) {
  BlockState& block = Memory(0).blocks[0];
  ClaimPatience patience(watch_);
  while (!TryClaim(block, MyClaim()) && !TryTakeOver(Memory(0), block, MyClaim())) {
    const Claim holder = Claim::Unpack(block.claim.load(std::memory_order_relaxed));
    const bool in_time = patience.Wait(block, deadline);
    PASSEL_RETURN_IF_ERROR(watch_.failure());
    if (!in_time) {
      return DeadlineExceeded(fmt::format(
          "{} copies the parameters from the GPU to their shadow for too long: is it stopped?",
          options_.names(holder.worker)));
    }
  }
  Failpoint("shadow.claimed");
  const Status status = CopyToShadow(deadline);
  ReleaseClaim(block, MyClaim());
  return status;
}

Status DeviceParameters::CopyToShadow(Deadline deadline) {
  const std::int64_t before = store_.global_step();
  const nvtx::Range range(nvtx::Event::kShadow, before);
  Status status;
  for (int s = 0; s < shards() && status.ok(); ++s) {
    const ShardMemory& memory = Memory(s);
    status = arena_->Read(s, 0, memory.values, deadline);
    for (int slot = 0; slot < memory.num_slots && status.ok(); ++slot) {
      status = arena_->Read(s, 1 + slot, memory.slots[slot], deadline);
    }
  }
  if (status.ok()) {
    PublishShadow(Memory(0), before, store_.global_step());
  } else {
    ShadowBrokeOff(Memory(0), store_.global_step());
  }
  return status;
}

}  // namespace passel::job

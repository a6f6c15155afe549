// pipe_state.h - what both directions of a FabricPipe share: its endpoint, who makes it
// work, and the frames on their way.

#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "base/clock.h"
#include "fabric/libfabric/endpoint.h"
#include "fabric/libfabric/fabric_pipe.h"
#include "fabric/libfabric/frame.h"

namespace passel::fabric {

struct FabricPipe::State {
  using Lock = std::unique_lock<std::mutex>;
  /// Beside those of the window, frames without a header: one is sent for each half of a window
  /// that was taken.
  static constexpr std::size_t kSlots = kFrameWindow + 4;
  static constexpr std::size_t kMostChunks = 16;

  explicit State(std::shared_ptr<Network> owner, const FabricPipeOptions& chosen)
      : network(std::move(owner)), options(chosen) {}

  // --- Waiting. All with the lock held, which waits give up ---

  /// False: the deadline has passed, or it is broken. Looks a few times at least.
  template <typename Ready>
  bool Await(Lock& lock, Deadline deadline, Ready&& ready) {
    for (int looks = 0;; ++looks) {
      if (!broken.ok()) return false;
      if (ready()) return true;
      if (looks >= kLooks && deadline.Expired()) return false;
      Step(lock, deadline);
    }
  }
  /// Until the transfer is done. It is broken when that takes longer than the stall limit.
  Status AwaitMoving(Lock& lock, const Transfer& transfer);
  /// Posts as soon as the provider takes it. It is broken if that is not before the stall limit.
  template <typename Post>
  Status PostSoon(Lock& lock, Post&& post) {
    const Deadline stalled = Deadline::After(options.stall_limit);
    for (;;) {
      PASSEL_RETURN_IF_ERROR(broken);
      const Result<bool> posted = post();
      if (!posted.ok()) return Unreached(posted.status().message());
      if (*posted) return {};
      if (stalled.Expired()) return Unreached(kStands);
      Step(lock, stalled.Sooner(kRetry));
    }
  }
  /// Makes the provider work once, or waits until another thread has; sleeps if nothing comes.
  void Step(Lock& lock, Deadline deadline);

  static constexpr const char* kStands =
      "the other end cannot be reached, or a message stands still";
  /// It is broken: what is wrong, and from where to where, is said.
  Status Unreached(const std::string& what);
  /// The first status counts. Returns it.
  Status Break(const Status& why);
  void CloseIfUnused();

  // --- Frames ---

  void TakeCompletion(const Completion& completion);
  void TakeFrame(int slot);
  /// False: not yet.
  bool PostSlot(int slot);
  /// The header of what is in it has been taken.
  void GiveBack(int slot);
  /// Says how many frames were taken, when the other end may wait for that.
  void Tell();
  std::span<std::byte> SlotMemory(int slot) {
    return std::span(memory).subspan(static_cast<std::size_t>(slot) * kMaxPipeFrameBytes,
                                     kMaxPipeFrameBytes);
  }
  std::span<std::byte> OutMemory() {
    return std::span(memory).subspan(kSlots * kMaxPipeFrameBytes, kMaxPipeFrameBytes);
  }
  std::span<std::byte> TellMemory() {
    return std::span(memory).subspan((kSlots + 1) * kMaxPipeFrameBytes, kFramePrefixBytes);
  }

  // --- The message that is being read ---

  struct Bulk {
    std::uint64_t floats = 0, read = 0;
    std::size_t chunk = 0;  ///< floats of each part but the last; 0: it is in `slot`
    int slot = -1;
    std::size_t spare = 0;  ///< floats at the end of the part in `scratch` that are not read yet
    std::uint64_t left() const { return floats - read; }
    std::size_t next_part() const { return std::min<std::uint64_t>(chunk, left()); }
  };
  /// The next part into `scratch`. False: not before the deadline; call it again.
  Result<bool> FillScratch(Lock& lock, Deadline deadline);
  Status SkipRest(Lock& lock, Deadline deadline);
  /// Of what has come already: so many floats.
  std::size_t CopySpare(std::span<float> into);
  /// So many floats as whole parts of `into` have; into its beginning.
  Status ReadParts(Lock& lock, std::span<float> into, void* descriptor,
                   const std::function<bool()>& go_on);
  Status Unwanted();
  Status CheckPart(const Transfer& part, std::size_t floats);
  void EndOfBulk();

  static constexpr int kLooks = 4;
  static constexpr std::chrono::milliseconds kRetry{1};

  const std::shared_ptr<Network> network;
  const FabricPipeOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  PipeTags tags;
  std::string peer;  // its address, for people
  bool joined = false;
  Status broken;
  int users = 0;
  bool leading = false;  // somebody makes the provider work, without the lock
  std::int64_t traffic_ns = 0, strangers_ns = 0;
  std::chrono::nanoseconds nap{0};

  std::vector<std::byte> memory;  // of the slots, of the frame that is sent, of Tell()
  Registration registered;
  std::vector<std::byte> scratch;
  Registration scratch_registered;

  struct Slot {
    Transfer transfer;
    PipeFrame frame;
    enum { kIdle, kPosted, kHolds } state = kIdle;
  };
  std::array<Slot, kSlots> slots;
  std::uint64_t expected = 1;  // sequence of the next message
  std::uint64_t taken = 0, told = 0;
  Transfer tell;

  std::uint64_t sent = 0, taken_there = 0;
  Transfer out;
  std::array<Transfer, kMostChunks> out_parts, in_parts;
  Transfer scratch_part;
  Bulk bulk;

  // Last: it is closed before the memory that it may write goes.
  std::unique_ptr<Endpoint> endpoint;  // null: closed
};

/// One call that touches the endpoint. Once the pipe is broken the last one closes that, and all
/// wait for it before they return: their memory is their own again.
class FabricPipe::Use {
 public:
  explicit Use(State& state) : state_(state) {
    const State::Lock lock(state_.mutex);
    PASSEL_CHECK(state_.joined, "a pipe that has not joined");
    status_ = state_.broken;
    if (status_.ok()) ++state_.users;
  }
  ~Use() {
    if (!status_.ok()) return;
    State::Lock lock(state_.mutex);
    --state_.users;
    if (state_.broken.ok()) return;
    state_.CloseIfUnused();
    state_.changed.wait(lock, [this] { return state_.endpoint == nullptr; });
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  const Status& status() const { return status_; }

 private:
  State& state_;
  Status status_;
};

}  // namespace passel::fabric

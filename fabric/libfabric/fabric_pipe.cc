#include "fabric/libfabric/fabric_pipe.h"

#include <fmt/core.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/runnable_threads.h"
#include "fabric/libfabric/pipe_state.h"

namespace passel::fabric {
namespace {

constexpr std::chrono::milliseconds kLongestSleep{20};
// Once nothing has come for a while; connecting is over then.
constexpr std::chrono::milliseconds kQuietSleep{100};
constexpr std::chrono::seconds kQuiet{1};
constexpr std::chrono::milliseconds kFollow{5};
constexpr std::chrono::microseconds kFirstNap{20};
constexpr std::chrono::microseconds kLongestNap{2000};
constexpr std::chrono::milliseconds kStrangers{100};

// Threads of this process that poll: more than one for each processor but one delay those that
// have something to do.
std::atomic<int> polling{0};

int MostPolling() {
  static const int most = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - 1);
  return most;
}

}  // namespace

Result<std::unique_ptr<FabricPipe>> FabricPipe::Open(const std::shared_ptr<Network>& network,
                                                     const FabricPipeOptions& options) {
  const std::size_t floats = options.chunk_bytes / sizeof(float);
  PASSEL_CHECK(floats >= kMinChunkFloats && floats <= kMaxChunkFloats, "parts of 4 KiB to 4 MiB");
  PASSEL_CHECK(options.chunks_under_way >= 1 && options.chunks_under_way <= State::kMostChunks,
               "1 to 16 parts under way");
  auto state = std::make_unique<State>(network, options);
  state->memory.resize((State::kSlots + 1) * kMaxPipeFrameBytes + kFramePrefixBytes);
  PASSEL_ASSIGN_OR_RETURN(state->registered, network->impl().Cover(state->memory));
  PASSEL_ASSIGN_OR_RETURN(state->endpoint, Endpoint::Open(network));
  return std::unique_ptr<FabricPipe>(new FabricPipe(std::move(state), options));
}

FabricPipe::FabricPipe(std::unique_ptr<State> state, const FabricPipeOptions& options)
    : options_(options), local_address_(state->endpoint->address()), state_(std::move(state)) {}

FabricPipe::~FabricPipe() { Close(Unavailable("the pipe is closed")); }

Status FabricPipe::Join(std::span<const std::uint8_t> peer, const PipeTags& tags) {
  State& s = *state_;
  State::Lock lock(s.mutex);
  PASSEL_CHECK(!s.joined, "a pipe joins once");
  PASSEL_RETURN_IF_ERROR(s.broken);
  PASSEL_RETURN_IF_ERROR(s.endpoint->SetPeer(peer));
  s.peer = AddressText(peer);
  s.tags = tags;
  for (int slot = 0; slot < static_cast<int>(State::kSlots); ++slot) {
    s.slots[static_cast<std::size_t>(slot)].transfer.slot = slot;
    if (!s.PostSlot(slot)) return s.Break(Unavailable("the provider takes no receives"));
  }
  s.joined = true;
  return {};
}

std::uint64_t FabricPipe::strangers() const {
  const State::Lock lock(state_->mutex);
  return state_->endpoint == nullptr ? 0 : state_->endpoint->dropped();
}

void FabricPipe::Close(const Status& why) {
  const State::Lock lock(state_->mutex);
  (void)state_->Break(Unavailable(why.message()));
  state_->CloseIfUnused();
}

Status FabricPipe::Send(std::span<const std::uint8_t> header, std::span<const float> bulk) {
  PASSEL_CHECK(!header.empty() && header.size() <= kMaxHeaderBytes, "a header of 1 to 16384 bytes");
  const std::lock_guard sending(sending_);
  State& s = *state_;
  // Before the pipe is used, after it is closed: the provider may read the bulk until then.
  Registration registered;
  const Use use(s);
  PASSEL_RETURN_IF_ERROR(use.status());

  PipeFrame frame;
  frame.header_bytes = static_cast<std::uint32_t>(header.size());
  frame.bulk_floats = bulk.size();
  const std::size_t whole = kFramePrefixBytes + header.size() + bulk.size_bytes();
  frame.bulk_inline = !bulk.empty() && whole <= kMaxInlineFrameBytes;
  const bool apart = !bulk.empty() && !frame.bulk_inline;
  // Parts of one size, so that none is small.
  std::size_t parts = 0, chunk = 0;
  if (apart) {
    const std::size_t most = options_.chunk_bytes / sizeof(float);
    parts = (bulk.size() + most - 1) / most;
    chunk = std::max((bulk.size() + parts - 1) / parts, kMinChunkFloats);
    parts = (bulk.size() + chunk - 1) / chunk;
    frame.chunk_floats = static_cast<std::uint32_t>(chunk);
    PASSEL_ASSIGN_OR_RETURN(registered, s.network->impl().Cover(std::as_bytes(bulk)));
  }

  State::Lock lock(s.mutex);
  const Deadline stalled = Deadline::After(options_.stall_limit);
  if (!s.Await(lock, stalled, [&] { return s.sent - s.taken_there < kFrameWindow; })) {
    return s.Break(Unavailable("the other end takes no messages"));
  }
  frame.sequence = ++s.sent;
  frame.taken = s.told = s.taken;
  std::byte* out = s.OutMemory().data();
  EncodePipeFrame(frame, reinterpret_cast<std::uint8_t*>(out));
  std::memcpy(out + kFramePrefixBytes, header.data(), header.size());
  std::size_t bytes = kFramePrefixBytes + header.size();
  if (frame.bulk_inline) {
    std::memcpy(out + bytes, bulk.data(), bulk.size_bytes());
    bytes += bulk.size_bytes();
  }
  PASSEL_RETURN_IF_ERROR(s.PostSoon(lock, [&] {
    return s.endpoint->PostSend({out, bytes}, s.registered.descriptor, s.tags.sends, &s.out);
  }));
  const std::span<const std::byte> rest = std::as_bytes(bulk);
  for (std::size_t posted = 0, done = 0; done < parts; ++done) {
    for (; posted < parts && posted - done < options_.chunks_under_way; ++posted) {
      const std::size_t first = posted * chunk * sizeof(float);
      const std::size_t length = std::min(chunk * sizeof(float), rest.size() - first);
      PASSEL_RETURN_IF_ERROR(s.PostSoon(lock, [&] {
        return s.endpoint->PostSend(rest.subspan(first, length), registered.descriptor,
                                    s.tags.sends ^ 1, &s.out_parts[posted % State::kMostChunks]);
      }));
    }
    PASSEL_RETURN_IF_ERROR(s.AwaitMoving(lock, s.out_parts[done % State::kMostChunks]));
  }
  PASSEL_RETURN_IF_ERROR(s.AwaitMoving(lock, s.out));
  s.traffic_ns = MonotonicNs();
  return {};
}

// --- Waiting -------------------------------------------------------------------------------------

Status FabricPipe::State::AwaitMoving(Lock& lock, const Transfer& transfer) {
  if (Await(lock, Deadline::After(options.stall_limit), [&] { return transfer.done; })) return {};
  return Unreached(kStands);
}

Status FabricPipe::State::Unreached(const std::string& what) {
  if (!broken.ok()) return broken;
  const NetworkOptions& here = network->options();
  const std::string by =
      here.interface.empty() ? here.address : fmt::format("{}, {},", here.interface, here.address);
  return Break(Unavailable(
      fmt::format("{}: from {} here to {} there; look at the network between them, and at "
                  "--fabric_iface of both",
                  what, by, peer)));
}

void FabricPipe::State::Step(Lock& lock, Deadline deadline) {
  const std::chrono::nanoseconds left = deadline.Remaining();
  if (leading) {
    endpoint->Wake();  // it may sleep, and what this thread has begun be done
    changed.wait_for(lock, std::min<std::chrono::nanoseconds>(left, kFollow));
    return;
  }
  leading = true;
  for (int slot = 0; slot < static_cast<int>(kSlots); ++slot) {
    if (slots[static_cast<std::size_t>(slot)].state == Slot::kIdle) GiveBack(slot);
  }
  Tell();
  const std::int64_t now = MonotonicNs();
  const bool polls =
      now - traffic_ns < options.spin.count() && !(options.gives_way && ThreadsOutnumberCores());
  const bool quiet = traffic_ns != 0 && now - traffic_ns > std::chrono::nanoseconds(kQuiet).count();
  const bool drops = now - strangers_ns > std::chrono::nanoseconds(kStrangers).count();
  if (drops) strangers_ns = now;
  lock.unlock();
  Endpoint::Completions completions;
  // Relaxed: a count that nothing else hangs on.
  const bool too_many = polling.fetch_add(1, std::memory_order_relaxed) >= MostPolling();
  if (drops) endpoint->DropStrangers(tags.receives ^ 1);
  const Result<std::size_t> count = endpoint->Poll(&completions);
  polling.fetch_sub(1, std::memory_order_relaxed);
  const bool idle = count.ok() && *count == 0 && (!polls || too_many) && left.count() > 0;
  if (idle && endpoint->can_sleep()) {
    endpoint->Sleep(std::min<std::chrono::nanoseconds>(left, quiet ? kQuietSleep : kLongestSleep));
  }
  lock.lock();
  leading = false;
  if (!count.ok()) {
    (void)Break(count.status());
  } else {
    for (std::size_t i = 0; i < *count && broken.ok(); ++i) TakeCompletion(completions[i]);
  }
  // Also when this thread is about to leave: another one has to go on.
  if (users > 1 && (idle || !count.ok() || *count > 0 || left.count() == 0)) changed.notify_all();
  if (!idle) {
    nap = kFirstNap;
  } else if (!endpoint->can_sleep() && broken.ok()) {
    changed.wait_for(lock, std::min(left, nap));
    nap = std::min<std::chrono::nanoseconds>(2 * nap, kLongestNap);
  }
}

Status FabricPipe::State::Break(const Status& why) {
  if (broken.ok()) {
    broken = why;
    if (endpoint != nullptr) endpoint->Wake();
    changed.notify_all();
  }
  return broken;
}

void FabricPipe::State::CloseIfUnused() {
  if (users > 0 || endpoint == nullptr) return;
  const auto posted = [](const Transfer& transfer) { return transfer.posted; };
  if (posted(scratch_part) || std::any_of(out_parts.begin(), out_parts.end(), posted) ||
      std::any_of(in_parts.begin(), in_parts.end(), posted)) {
    Endpoint::GiveUp(std::move(endpoint));
  }
  endpoint.reset();
  changed.notify_all();
}

// --- Frames --------------------------------------------------------------------------------------

void FabricPipe::State::TakeCompletion(const Completion& completion) {
  Transfer& transfer = *completion.transfer;
  transfer.posted = false;
  transfer.done = true;
  transfer.bytes = completion.bytes;
  traffic_ns = MonotonicNs();
  if (completion.error != 0) {
    (void)Unreached(FabricStatus(-completion.error, "a transfer has failed").message());
  } else if (transfer.slot >= 0) {
    TakeFrame(transfer.slot);
  }
}

void FabricPipe::State::TakeFrame(int index) {
  Slot& slot = slots[static_cast<std::size_t>(index)];
  const std::span<const std::byte> memory_of = SlotMemory(index).first(slot.transfer.bytes);
  const Result<PipeFrame> frame =
      DecodePipeFrame({reinterpret_cast<const std::uint8_t*>(memory_of.data()), memory_of.size()},
                      options.most_floats);
  if (!frame.ok()) {
    (void)Break(Unavailable(frame.status().message()));
    return;
  }
  if (frame->taken > sent) {
    (void)Break(Unavailable("the other end has taken more than was sent"));
    return;
  }
  taken_there = std::max(taken_there, frame->taken);
  slot.frame = *frame;
  if (frame->header_bytes == 0) {
    slot.state = Slot::kIdle;
    GiveBack(index);
    return;
  }
  slot.state = Slot::kHolds;
  const bool twice = std::any_of(slots.begin(), slots.end(), [&](const Slot& other) {
    return &other != &slot && other.state == Slot::kHolds &&
           other.frame.sequence == frame->sequence;
  });
  if (twice || frame->sequence < expected || frame->sequence >= expected + kFrameWindow) {
    (void)Break(Unavailable("a message came out of its order"));
  }
}

bool FabricPipe::State::PostSlot(int index) {
  Slot& slot = slots[static_cast<std::size_t>(index)];
  const Result<bool> posted = endpoint->PostReceive(SlotMemory(index), registered.descriptor,
                                                    tags.receives, &slot.transfer);
  if (!posted.ok()) (void)Break(posted.status());
  if (!posted.ok() || !*posted) return false;
  slot.state = Slot::kPosted;
  return true;
}

// Counts a message only once there is room for another: none may come that nobody has asked for.
void FabricPipe::State::GiveBack(int index) {
  Slot& slot = slots[static_cast<std::size_t>(index)];
  slot.state = Slot::kIdle;
  const bool message = slot.frame.header_bytes > 0;
  if (!PostSlot(index)) return;
  if (message) ++taken;
}

void FabricPipe::State::Tell() {
  if (taken - told < kFrameWindow / 2 || tell.posted || !broken.ok()) return;
  PipeFrame frame;
  frame.taken = taken;
  const std::span<std::byte> bytes = TellMemory();
  EncodePipeFrame(frame, reinterpret_cast<std::uint8_t*>(bytes.data()));
  const Result<bool> posted = endpoint->PostSend(bytes, registered.descriptor, tags.sends, &tell);
  if (!posted.ok()) (void)Break(posted.status());
  if (posted.ok() && *posted) told = taken;
}

}  // namespace passel::fabric

// The receiving side of a FabricPipe.

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "fabric/libfabric/pipe_state.h"

namespace passel::fabric {
namespace {

constexpr std::chrono::milliseconds kAsk{20};  // between two calls of go_on

}  // namespace

Result<Arrival> FabricPipe::Receive(Deadline deadline) {
  State& s = *state_;
  const Use use(s);
  PASSEL_RETURN_IF_ERROR(use.status());
  State::Lock lock(s.mutex);
  PASSEL_RETURN_IF_ERROR(s.SkipRest(lock, deadline));
  State::Slot* next = nullptr;
  const bool came = s.Await(lock, deadline, [&] {
    for (State::Slot& slot : s.slots) {
      if (slot.state == State::Slot::kHolds && slot.frame.sequence == s.expected) next = &slot;
    }
    return next != nullptr;
  });
  PASSEL_RETURN_IF_ERROR(s.broken);
  if (!came) return DeadlineExceeded("no message");
  ++s.expected;
  const PipeFrame& frame = next->frame;
  const int slot = next->transfer.slot;
  const std::span<const std::byte> header =
      s.SlotMemory(slot).subspan(kFramePrefixBytes, frame.header_bytes);
  Arrival arrival;
  arrival.header.resize(header.size());
  std::memcpy(arrival.header.data(), header.data(), header.size());
  arrival.bulk_floats = frame.bulk_floats;
  s.bulk = State::Bulk();
  s.bulk.floats = frame.bulk_floats;
  s.bulk.chunk = frame.chunk_floats;
  if (frame.bulk_inline) {
    s.bulk.slot = slot;
  } else {
    s.GiveBack(slot);
    s.Tell();
  }
  return arrival;
}

Result<std::size_t> FabricPipe::ReadSome(std::span<float> into, Deadline deadline) {
  State& s = *state_;
  const Use use(s);
  PASSEL_RETURN_IF_ERROR(use.status());
  State::Lock lock(s.mutex);
  PASSEL_CHECK(into.size() <= s.bulk.left(), "more than there is");
  std::size_t read = 0;
  while (read < into.size()) {
    read += s.CopySpare(into.subspan(read));
    if (read == into.size()) break;
    PASSEL_ASSIGN_OR_RETURN(const bool came, s.FillScratch(lock, deadline));
    if (!came) break;
  }
  if (s.bulk.left() == 0) s.EndOfBulk();
  return read;
}

Status FabricPipe::ReadBulk(std::span<float> into, const std::function<bool()>& go_on) {
  State& s = *state_;
  // Before the pipe is used, after it is closed: the provider may write into it until then.
  Registration registered;
  const Use use(s);
  PASSEL_RETURN_IF_ERROR(use.status());
  if (s.bulk.slot < 0) {
    PASSEL_ASSIGN_OR_RETURN(registered, s.network->impl().Cover(std::as_bytes(into)));
  }
  State::Lock lock(s.mutex);
  State::Bulk& bulk = s.bulk;
  PASSEL_CHECK(into.size() <= bulk.left(), "more than there is");
  Deadline stalled = Deadline::After(options_.stall_limit);
  const auto go = [&] {
    lock.unlock();
    const bool goes = !go_on || go_on();
    lock.lock();
    return goes;
  };
  while (!into.empty()) {
    into = into.subspan(s.CopySpare(into));
    if (into.empty()) break;
    if (into.size() >= bulk.next_part()) {
      const std::uint64_t before = bulk.read;
      PASSEL_RETURN_IF_ERROR(s.ReadParts(lock, into, registered.descriptor, go_on));
      into = into.subspan(bulk.read - before);
      stalled = Deadline::After(options_.stall_limit);
      continue;
    }
    PASSEL_ASSIGN_OR_RETURN(const bool came, s.FillScratch(lock, stalled.Sooner(kAsk)));
    if (came) stalled = Deadline::After(options_.stall_limit);
    if (!came && stalled.Expired()) return s.Break(Unavailable("a message stands still"));
    if (!go()) return s.Unwanted();
  }
  if (bulk.left() == 0) s.EndOfBulk();
  if (!go()) return s.Unwanted();
  return {};
}

std::size_t FabricPipe::State::CopySpare(std::span<float> into) {
  const std::size_t floats =
      std::min<std::uint64_t>(into.size(), bulk.slot >= 0 ? bulk.left() : bulk.spare);
  if (floats == 0) return 0;
  // In the frame, or the end of the part that is there.
  const std::byte* first = nullptr;
  if (bulk.slot >= 0) {
    const PipeFrame& frame = slots[static_cast<std::size_t>(bulk.slot)].frame;
    first = SlotMemory(bulk.slot).data() + kFramePrefixBytes + frame.header_bytes +
            bulk.read * sizeof(float);
  } else {
    first = scratch.data() + scratch_part.bytes - bulk.spare * sizeof(float);
    bulk.spare -= floats;
  }
  std::memcpy(into.data(), first, floats * sizeof(float));
  bulk.read += floats;
  return floats;
}

Status FabricPipe::State::ReadParts(Lock& lock, std::span<float> into, void* descriptor,
                                    const std::function<bool()>& go_on) {
  const std::size_t floats =
      into.size() >= bulk.left() ? bulk.left() : into.size() / bulk.chunk * bulk.chunk;
  const std::size_t parts = (floats + bulk.chunk - 1) / bulk.chunk;
  const std::span<std::byte> bytes = std::as_writable_bytes(into.first(floats));
  Deadline stalled = Deadline::After(options.stall_limit);
  const auto size_of = [&](std::size_t part) {
    return std::min(bulk.chunk, floats - part * bulk.chunk);
  };
  for (std::size_t posted = 0, done = 0; done < parts;) {
    for (bool takes = true; takes && posted < parts && posted - done < options.chunks_under_way;) {
      const Result<bool> post = endpoint->PostReceive(
          bytes.subspan(posted * bulk.chunk * sizeof(float), size_of(posted) * sizeof(float)),
          descriptor, tags.receives ^ 1, &in_parts[posted % kMostChunks]);
      if (!post.ok()) return Break(post.status());
      takes = *post;
      if (takes) ++posted;
    }
    const Transfer& oldest = in_parts[done % kMostChunks];
    const Deadline look = stalled.Sooner(posted == done ? std::chrono::milliseconds(1) : kAsk);
    if (Await(lock, look, [&] { return posted > done && oldest.done; })) {
      PASSEL_RETURN_IF_ERROR(CheckPart(oldest, size_of(done)));
      ++done;
      stalled = Deadline::After(options.stall_limit);
      continue;
    }
    PASSEL_RETURN_IF_ERROR(broken);
    if (stalled.Expired()) return Break(Unavailable("a message stands still"));
    if (!go_on) continue;
    lock.unlock();
    const bool goes = go_on();
    lock.lock();
    if (!goes) return Unwanted();
  }
  bulk.read += floats;
  return {};
}

Status FabricPipe::State::Unwanted() {
  constexpr const char* kText = "the rest of a message is not wanted any more";
  (void)Break(Unavailable(kText));
  return Cancelled(kText);
}

Status FabricPipe::State::CheckPart(const Transfer& part, std::size_t floats) {
  if (part.bytes == floats * sizeof(float)) return {};
  return Break(Unavailable(fmt::format("a part of a message has {} bytes instead of {}", part.bytes,
                                       floats * sizeof(float))));
}

Result<bool> FabricPipe::State::FillScratch(Lock& lock, Deadline deadline) {
  const std::size_t floats = bulk.next_part();
  if (scratch.size() < bulk.chunk * sizeof(float)) {
    scratch.resize(bulk.chunk * sizeof(float));
    Result<Registration> covered = network->impl().Cover(scratch);
    if (!covered.ok()) return Break(covered.status());
    scratch_registered = std::move(*covered);
  }
  if (!scratch_part.posted) {
    const Result<bool> posted =
        endpoint->PostReceive(std::span(scratch).first(floats * sizeof(float)),
                              scratch_registered.descriptor, tags.receives ^ 1, &scratch_part);
    if (!posted.ok()) return Break(posted.status());
  }
  const bool came = Await(lock, deadline, [&] { return scratch_part.done; });
  PASSEL_RETURN_IF_ERROR(broken);
  if (!came) return false;
  scratch_part.done = false;
  PASSEL_RETURN_IF_ERROR(CheckPart(scratch_part, floats));
  bulk.spare = floats;
  return true;
}

Status FabricPipe::State::SkipRest(Lock& lock, Deadline deadline) {
  while (bulk.slot < 0 && bulk.left() > 0) {
    if (bulk.spare == 0) {
      PASSEL_ASSIGN_OR_RETURN(const bool came, FillScratch(lock, deadline));
      if (!came) return DeadlineExceeded("the rest of a message has not come");
    }
    bulk.read += bulk.spare;
    bulk.spare = 0;
  }
  EndOfBulk();
  return {};
}

void FabricPipe::State::EndOfBulk() {
  if (bulk.slot >= 0) GiveBack(bulk.slot);
  bulk = Bulk();
  // Bulks that are not read straight into their place are rare: the room for them goes.
  scratch_registered = Registration();
  scratch = std::vector<std::byte>();
  Tell();
}

}  // namespace passel::fabric

#include "fabric/control/channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/clock.h"
#include "base/tcp_socket.h"
#include "cluster/json_message.h"

namespace passel::fabric {
namespace {

// Sealed and sent at once.
constexpr std::size_t kOutboxBytes = 8 * kBulkFrameBytes;

}  // namespace

Channel::Channel(FileDescriptor socket, const StreamKeys& keys,
                 std::chrono::nanoseconds stall_limit)
    : socket_(std::move(socket)),
      stall_limit_(stall_limit),
      sealer_(keys.send),
      opener_(keys.receive) {}

Status Channel::Over(const Status& why) {
  const std::lock_guard lock(why_mutex_);
  if (why_.ok()) {
    why_ = Unavailable(why.message());
    over_.store(true, std::memory_order_release);
    ::shutdown(socket_.get(), SHUT_RDWR);
  }
  return why_;
}

// Relaxed, as in Polls(): a hint when to sleep, which orders nothing.
void Channel::NoteTraffic() {
  if (spin_.count() > 0) traffic_ns_.store(MonotonicNs(), std::memory_order_relaxed);
}

bool Channel::Polls() const {
  return spin_.count() > 0 &&
         MonotonicNs() - traffic_ns_.load(std::memory_order_relaxed) < spin_.count();
}

void Channel::Shut(const Status& why) { (void)Over(why); }

// With `stalls_only` the deadline begins anew whenever something goes.
Status Channel::Flush(Deadline deadline, bool stalls_only) {
  for (std::span<const std::uint8_t> left = outbox_; !left.empty();) {
    const Result<std::size_t> sent = SendNow(socket_.get(), left);
    if (!sent.ok()) return Over(sent.status());
    left = left.subspan(*sent);
    if (*sent > 0) {
      if (stalls_only) deadline = Deadline::After(stall_limit_);
    } else if (!AwaitReady(socket_.get(), POLLOUT, deadline)) {
      return Over(Unavailable("the other end does not read"));
    }
  }
  outbox_.clear();
  NoteTraffic();
  return {};
}

Status Channel::Send(FrameKind kind, std::span<const std::uint8_t> payload, Deadline deadline) {
  const std::lock_guard lock(sending_);
  if (over_.load(std::memory_order_acquire)) return Over({});
  sealer_.Seal(kind, payload, {}, &outbox_);
  return Flush(deadline, false);
}

Status Channel::SendJson(const Json& json, Deadline deadline) {
  const std::string text = json.Write();
  if (text.size() > kMaxPayloadBytes) return ResourceExhausted("a text is too long for a frame");
  return Send(FrameKind::kText, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()},
              deadline);
}

Status Channel::SendMessage(std::span<const std::uint8_t> message,
                            std::span<const std::uint8_t> bulk) {
  const std::lock_guard lock(sending_);
  if (over_.load(std::memory_order_acquire)) return Over({});
  sealer_.Seal(FrameKind::kMessage, message, {}, &outbox_);
  while (!bulk.empty()) {
    const std::size_t part = std::min(bulk.size(), kBulkFrameBytes);
    sealer_.Seal(FrameKind::kBulk, bulk.first(part), {}, &outbox_);
    bulk = bulk.subspan(part);
    if (outbox_.size() >= kOutboxBytes) {
      PASSEL_RETURN_IF_ERROR(Flush(Deadline::After(stall_limit_), true));
    }
  }
  return Flush(Deadline::After(stall_limit_), true);
}

Result<Frame> Channel::Receive(Deadline deadline) {
  for (;;) {
    if (over_.load(std::memory_order_acquire)) return Over({});
    const Result<std::optional<Frame>> frame = opener_.Next();
    if (!frame.ok()) return Over(frame.status());
    if (*frame) {
      partial_since_ns_ = 0;
      return **frame;
    }
    const Result<std::size_t> came = ReceiveNow(socket_.get(), opener_.Room());
    if (!came.ok()) return Over(came.status());
    opener_.Filled(*came);
    if (*came > 0) {
      NoteTraffic();
      continue;
    }
    if (!opener_.partial()) {
      partial_since_ns_ = 0;
    } else if (partial_since_ns_ == 0) {
      partial_since_ns_ = MonotonicNs();
    } else if (MonotonicNs() - partial_since_ns_ > stall_limit_.count()) {
      return Over(Unavailable("a frame stands still"));
    }
    if (deadline.Expired()) return DeadlineExceeded("no frame came");
    if (Polls()) continue;
    Deadline wait = deadline;
    if (partial_since_ns_ != 0) {
      wait = Deadline::At(std::min(wait.at_ns(), partial_since_ns_ + stall_limit_.count() + 1));
    }
    (void)AwaitReady(socket_.get(), POLLIN, wait);
  }
}

Result<Json> Channel::ReceiveJson(Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(const Frame frame, Receive(deadline));
  if (frame.kind != FrameKind::kText) return DataLoss("a frame is not the text that was due");
  return ParseMessage({reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size()});
}

}  // namespace passel::fabric

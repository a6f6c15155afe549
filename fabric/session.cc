#include "fabric/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/wait_check.h"

namespace passel::fabric {
namespace {

constexpr std::chrono::seconds kConnectLimit{5};
constexpr std::chrono::milliseconds kConnectPause{20};  // between two attempts
constexpr std::chrono::milliseconds kLookForTurn{50};

// Whoever is there will not change its mind. Not of one that had let us in: it may not be the one
// that comes back.
bool IsRefusal(const Status& status) {
  return status.code() == Code::kPermissionDenied || status.code() == Code::kFailedPrecondition ||
         status.code() == Code::kInvalidArgument;
}

std::uint64_t RandomSession() {
  std::random_device random;
  return (std::uint64_t{random()} << 32 | random()) | 1;  // not 0
}

}  // namespace

Session::Session(std::string peer, Connector connector, const Hello& hello,
                 const SessionOptions& options, std::function<void(const Answer&)> heard)
    : peer_(std::move(peer)),
      connector_(std::move(connector)),
      options_(options),
      heard_(std::move(heard)),
      session_(RandomSession()) {
  hello_.request.session = session_;
  hello_.request.hello = hello;
}

Result<Answer> Session::Open(Deadline deadline) {
  PASSEL_RETURN_IF_ERROR(Await(&hello_, deadline));
  return hello_.answer;
}

void Session::SetMode(std::uint64_t mode) {
  const Lock lock(mutex_);
  hello_.request.hello.mode = mode;
}

void Session::SetEpoch(std::uint32_t epoch) {
  const Lock lock(mutex_);
  hello_.request.hello.epoch = epoch;
}

void Session::StopToo() {
  const Lock lock(mutex_);
  stop_too_ = true;
}

void Session::Start(Call* call) {
  Lock lock(mutex_);
  call->request.session = session_;
  call->request.id = next_id_++;
  call->finished = call->working = call->sent = false;
  call->next_send_ns = 0;
  call->pause = options_.first_pause;
  calls_.push_back(call);
  SendDue(lock);
}

void Session::Drop(Call* call) {
  Lock lock(mutex_);
  std::erase(calls_, call);
  changed_.wait(lock, [&] { return call->uses == 0; });
}

Status Session::Ask(Call* call, Deadline deadline) {
  Start(call);
  Status status = Await(call, deadline);
  Drop(call);
  return status;
}

Status Session::Await(Call* call, Deadline deadline, bool working_is_enough) {
  Lock lock(mutex_);
  for (bool looked = false;; looked = true) {
    if (call->finished) return call->answer.status;
    if (working_is_enough && call->working) return {};
    if (!failed_.ok()) return failed_;
    const bool given_up = gone_for() > options_.gone_limit;
    if (looked && (deadline.Expired() || given_up)) break;
    if (looked && WaitsAreChecked()) {
      lock.unlock();  // a check may wait for a thread that asks something here
      const bool over = WaitIsOver();
      lock.lock();
      if (call->finished) continue;
      if (over) break;
    }
    if (receiving_) {
      changed_.wait_for(lock,
                        std::min<std::chrono::nanoseconds>(deadline.Remaining(), kLookForTurn));
    } else {
      // To make a pipe takes some time.
      const auto slice = pipe_ != nullptr ? kWaitCheckPause : 30 * kWaitCheckPause;
      Turn(lock, WaitsAreChecked() ? deadline.Sooner(slice) : deadline);
    }
  }
  if (!greeted_) {
    return Unavailable(fmt::format("{} cannot be reached: {}", peer_,
                                   gone_.ok() ? "it does not answer" : gone_.message()));
  }
  return DeadlineExceeded(fmt::format("{} has not answered the request to {} in time", peer_,
                                      InfoOf(call->request.kind).name));
}

std::chrono::nanoseconds Session::gone_for() const {
  const std::int64_t since = gone_since_ns_;
  return std::chrono::nanoseconds(since == 0 ? 0 : MonotonicNs() - since);
}

// One message is received, or a pipe made; and what is due is sent. One thread at a time.
void Session::Turn(Lock& lock, Deadline deadline) {
  receiving_ = true;
  if (gone_since_ns_ != 0) {
    deadline = Deadline::At(
        std::min(deadline.at_ns(), Deadline::After(options_.gone_limit - gone_for()).at_ns()));
  }
  if (pipe_ == nullptr) {
    Connect(lock, deadline);
  } else {
    std::int64_t until = deadline.at_ns();
    if (!greeted_) until = std::min(until, hello_.next_send_ns);
    for (const Call* call : calls_) {
      if (greeted_ && !call->finished) until = std::min(until, call->next_send_ns);
    }
    const std::shared_ptr<Pipe> pipe = pipe_;
    lock.unlock();
    const Result<Arrival> arrival = pipe->Receive(Deadline::At(until));
    lock.lock();
    if (arrival.ok()) {
      received_.fetch_add(1, std::memory_order_relaxed);
      Take(lock, pipe, *arrival);
    } else if (arrival.status().code() != Code::kDeadlineExceeded) {
      LosePipe(pipe, arrival.status());
    }
  }
  SendDue(lock);
  receiving_ = false;
  changed_.notify_all();
}

void Session::Connect(Lock& lock, Deadline deadline) {
  lock.unlock();
  // Also after one that was closed before anything was said: the ps may have too many.
  std::this_thread::sleep_for(
      std::min(deadline.Remaining(), Deadline::At(next_connect_ns_).Remaining()));
  Result<std::unique_ptr<Pipe>> made = connector_(deadline.Sooner(kConnectLimit));
  next_connect_ns_ = MonotonicNs() + std::chrono::nanoseconds(kConnectPause).count();
  lock.lock();
  if (!made.ok()) {
    // A last try that the end cuts short says less than the one before it.
    if (gone_.ok() || made.status().code() != Code::kDeadlineExceeded) gone_ = made.status();
    // Also one that was told that the job was stopped needs no ps any more.
    const bool stopped = made.status().code() == Code::kCancelled;
    if (stopped || (IsRefusal(made.status()) && !hello_.finished)) failed_ = made.status();
    return;
  }
  pipe_ = std::move(*made);
  greeted_ = false;
  hello_.next_send_ns = 0;
  hello_.pause = options_.first_pause;
}

void Session::LosePipe(const std::shared_ptr<Pipe>& pipe, const Status& why) {
  if (pipe_ != pipe) return;
  pipe_ = nullptr;
  if (greeted_) gone_since_ns_ = MonotonicNs();
  greeted_ = false;
  gone_ = why;
}

void Session::SendDue(Lock& lock) {
  for (;;) {
    if (pipe_ == nullptr) return;
    const std::int64_t now = MonotonicNs();
    Call* due = nullptr;
    if (!greeted_) {
      if (hello_.next_send_ns <= now) due = &hello_;
    } else {
      const auto at = std::find_if(calls_.begin(), calls_.end(), [&](const Call* call) {
        return !call->finished && call->next_send_ns <= now;
      });
      if (at != calls_.end()) due = *at;
    }
    if (due == nullptr) return;
    Send(lock, due);
    // From its end on: a large bulk may take longer than the pause.
    due->next_send_ns = MonotonicNs() + due->pause.count();
    due->pause = std::min(2 * due->pause, options_.longest_pause);
  }
}

void Session::Send(Lock& lock, Call* call) {
  if (call == &hello_) {
    std::uint64_t first = next_id_;
    for (const Call* other : calls_) {
      if (!other->finished) first = std::min(first, other->request.id);
    }
    hello_.request.hello.first_step = first;
  }
  call->request.remaining_ns = call->deadline.Remaining().count();
  call->request.again = call->sent && !call->bulk.empty();
  if (stop_too_) call->request.flags |= kStopToo;
  if (call->request.again) {
    ++call->repeated;
  } else {
    call->outdated = std::exchange(call->repeated, 0);
  }
  call->sent = true;
  const std::span<const float> bulk = call->request.again ? std::span<const float>() : call->bulk;
  const std::vector<std::uint8_t> header = Encode(call->request);
  const std::shared_ptr<Pipe> pipe = pipe_;
  ++call->uses;
  lock.unlock();
  const Status status = pipe->Send(header, bulk);
  lock.lock();
  --call->uses;
  changed_.notify_all();
  sent_.fetch_add(1, std::memory_order_relaxed);
  if (!status.ok()) LosePipe(pipe, status);
}

void Session::Take(Lock& lock, const std::shared_ptr<Pipe>& pipe, const Arrival& arrival) {
  Result<Answer> decoded = DecodeAnswer(arrival.header);
  // What is not for us, or cannot be read, is as good as lost.
  if (!decoded.ok() || decoded->session != session_ || pipe != pipe_) return;
  Answer& answer = *decoded;
  if (answer.to == Kind::kHello) {
    Welcome(answer);
    return;
  }
  const auto at = std::find_if(calls_.begin(), calls_.end(), [&](const Call* call) {
    return call->request.id == answer.id && !call->finished;
  });
  if (at == calls_.end()) return;
  Call* call = *at;
  if (answer.unread) {
    // A second bulk would meet the one of the answer, and both sides would wait.
    if (call->outdated > 0) {
      --call->outdated;
      return;
    }
    if (call->repeated > 0) --call->repeated;
    call->sent = false;
    call->next_send_ns = 0;
    return;
  }
  if (answer.working) {
    call->working = true;
    call->pause = options_.longest_pause;
    call->next_send_ns = MonotonicNs() + call->pause.count();
    heard_(answer);
    return;
  }
  answer.values = answer.values && (call->request.flags & kValues) != 0 &&
                  arrival.bulk_floats == call->into.size();
  if (answer.values && !call->into.empty()) {
    ++call->uses;
    lock.unlock();
    const Status read = pipe->ReadBulk(call->into);
    lock.lock();
    --call->uses;
    if (!read.ok()) {
      LosePipe(pipe, read);
      return;
    }
  }
  heard_(answer);
  call->answer = std::move(answer);
  call->finished = true;
}

void Session::Welcome(const Answer& answer) {
  if (greeted_) return;
  if (!answer.status.ok()) {
    failed_ = answer.status;
    for (Call* call : calls_) {  // one that has left is not to learn that it cannot go on
      if (answer.yes && call->request.kind == Kind::kLeave) call->finished = true;
    }
    return;
  }
  greeted_ = true;
  gone_since_ns_ = 0;
  hello_.request.hello.epoch = answer.state.epoch;
  hello_.answer = answer;
  hello_.finished = true;
  heard_(answer);
  // It may be another proxy than the one that had them in hand.
  for (Call* call : calls_) {
    call->working = false;
    call->repeated = call->outdated = 0;
    call->next_send_ns = 0;
    call->pause = options_.first_pause;
  }
}

}  // namespace passel::fabric

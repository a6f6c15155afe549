#include "fabric/proxy.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/failpoint.h"
#include "fabric/counter_report.h"
#include "store/membership.h"

namespace passel::fabric {
namespace {

constexpr std::chrono::milliseconds kLook{20};  // for another pipe, or the end
// The same of one that has been quiet for a while: each look wakes the ps.
constexpr std::chrono::milliseconds kQuietLook{200};
constexpr std::chrono::seconds kQuiet{1};
// A repetition that comes so soon behind the answer was sent before it was heard.
constexpr std::chrono::milliseconds kCrossing{150};

WaitOptions OptionsOf(const ServedShard& served, const Hello& hello) {
  WaitOptions options;
  options.spin = served.options.spin;
  options.stall_limit = std::chrono::nanoseconds(hello.stall_limit_ns);
  options.start_wait = std::chrono::nanoseconds(hello.start_wait_ns);
  options.on_stall = hello.on_stall;
  options.eviction = Eviction::kFence;
  options.names = {hello.chief, hello.chief_name};
  return options;
}

// The life that is in the slot, or was there before one that is joining.
bool LastLifeIsOf(const ShardMemory& memory, const Request& hello) {
  const TaskState now = StateOf(memory, hello.hello.worker);
  const std::uint32_t last = now.phase == Phase::kJoining ? now.epoch - 1 : now.epoch;
  return LoadIdentity(memory.tasks[hello.hello.worker], last).start_time == hello.session;
}

// A worker that comes back and finds no proxy: the ps was started again, or took it for dead. On
// the lead it may go on as another life if the last one is its own, whether it heard of that or
// not; unless it was too slow for the others. The other shards cannot give it another life.
Status MayComeBack(const ServedShard& served, const Request& request, std::uint32_t former,
                   const WorkerNames& names) {
  const Hello& hello = request.hello;
  const bool leads = served.shard == 0;
  if (!ComesBack(hello, served.shard)) return {};
  const bool own = LastLifeIsOf(served.memory, request);
  const TaskState now = StateOf(served.memory, hello.worker);
  // One that is expected or joining was about to be its next, when the ps died.
  const bool over = now.phase == Phase::kDead || now.phase == Phase::kExpected ||
                    now.phase == Phase::kJoining ||
                    (now.phase == Phase::kRunning && former == now.epoch);
  if (leads && own && over) return {};
  return Aborted(fmt::format(
      "{} cannot go on: {}; start it again", names(hello.worker),
      own ? "its life was ended while its connection was gone"
          : fmt::format("ps/{} has begun anew, or another took its place", served.shard)));
}

// Lives are counted by ps/0: where a later one has been seen, it has lost its count, and its
// values.
Status CheckEpoch(const ServedShard& served, const Request& request, const WorkerNames& names) {
  const Hello& hello = request.hello;
  if (served.shard == 0) return {};
  const std::uint32_t known = StateOf(served.memory, hello.worker).epoch;
  const ProcessIdentity who = LoadIdentity(served.memory.tasks[hello.worker], known);
  if (known < hello.epoch || who.start_time == request.session) return {};
  return DataLoss(
      fmt::format("ps/0 has begun anew, while ps/{} has seen life {} of {}: a part of the values "
                  "cannot be trained on. End all tasks of this job and start it anew",
                  served.shard, known, names(hello.worker)));
}

}  // namespace

Result<std::shared_ptr<Proxy>> Proxy::Make(const ServedShard& served, const Request& request,
                                           std::uint32_t former) {
  const Hello& hello = request.hello;
  if (hello.plan_hash != served.plan.Hash()) {
    return FailedPrecondition(
        "this worker was started for other variables, modes or optimizer than the ps: give all "
        "tasks the same flags");
  }
  if (hello.shard != served.shard) {
    return InvalidArgument(fmt::format("this is ps/{}, not ps/{}", served.shard, hello.shard));
  }
  const WaitOptions options = OptionsOf(served, hello);
  // Never a process of this host, whose kernel knows nothing about it.
  const ProcessIdentity who{hello.pid, 0, request.session, 0};
  const bool leads = served.shard == 0;
  if (hello.worker >= 0 && hello.worker < served.memory.num_workers) {  // else Join() says it
    PASSEL_RETURN_IF_ERROR(MayComeBack(served, request, former, options.names));
    PASSEL_RETURN_IF_ERROR(CheckEpoch(served, request, options.names));
  }
  const ShardRules rules = served.plan.Rules();
  // Not dead: no round is to be decided between two lives of this worker.
  if (former != 0 && AwaitSuccessor(served.memory, hello.worker, former)) {
    Failpoint("hello.successor");
  }
  PASSEL_ASSIGN_OR_RETURN(
      std::shared_ptr<LocalWorker> life,
      leads
          ? LocalWorker::Join(served.memory, rules, hello.worker, who, options)
          : LocalWorker::Represent(served.memory, rules, hello.worker, hello.epoch, who, options));
  std::shared_ptr<Proxy> proxy(new Proxy(served, request, std::move(life)));
  if (hello.mode == Hello::kNoMode) return proxy;
  if (Status entered = proxy->EnterMode(hello.mode); !entered.ok()) {
    proxy->End();
    return entered;
  }
  return proxy;
}

bool Proxy::HasLeft(const ShardMemory& memory, const Request& hello) {
  const int worker = hello.hello.worker;
  if (worker < 0 || worker >= memory.num_workers) return false;
  const Phase phase = StateOf(memory, worker).phase;
  return (phase == Phase::kDone || phase == Phase::kLeft) && LastLifeIsOf(memory, hello);
}

Proxy::Proxy(const ServedShard& served, const Request& hello, std::shared_ptr<LocalWorker> life)
    : served_(served),
      memory_(served.memory),
      session_(hello.session),
      worker_(hello.hello.worker),
      life_(std::move(life)),
      lead_(served.shard == 0 ? std::make_unique<LocalLead>(life_) : nullptr),
      shard_(memory_, life_),
      mode_(served.plan.mode.mode),
      step_(hello.hello.first_step == 0 ? 0 : hello.hello.first_step - 1),
      lost_ns_(MonotonicNs()) {
  life_->while_blocked = [this] {
    if (!next_) (void)GoOn();
    return !next_;  // a later step ends it
  };
}

// --- Its connection ------------------------------------------------------------------------------

bool Proxy::Attach(std::unique_ptr<Pipe>& pipe) {
  const std::lock_guard lock(mutex_);
  if (ending_) return false;
  pipe_ = std::move(pipe);
  greet_ = true;
  heard_ns_ = MonotonicNs();
  changed_.notify_all();
  return true;
}

void Proxy::Finish() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  changed_.notify_all();
}

void Proxy::Left() {
  const std::lock_guard lock(mutex_);
  ending_ = left_ = true;
  changed_.notify_all();
}

void Proxy::End() {
  Finish();
  bool left = false;
  {
    const std::lock_guard lock(mutex_);
    left = left_;
  }
  if (!left || !Leave(memory_, worker_, life_->epoch(), Phase::kLeft)) {
    MarkDead(memory_, worker_, life_->epoch());
  }
}

bool Proxy::Waits() const {
  const std::lock_guard lock(mutex_);
  return ending_ || pipe_ == nullptr;
}

void Proxy::Hurry(bool on) {
  const std::lock_guard lock(mutex_);
  hurry_ns_ = on ? MonotonicNs() : 0;
}

// Greets who has come back.
std::shared_ptr<Pipe> Proxy::CurrentPipe() {
  std::shared_ptr<Pipe> pipe;
  {
    const std::lock_guard lock(mutex_);
    pipe = pipe_;
    if (!std::exchange(greet_, false)) return pipe;
  }
  from_ = pipe;
  Request hello;
  hello.kind = Kind::kHello;
  Reply(hello, Quick(hello));
  return pipe;
}

void Proxy::LosePipe(const std::shared_ptr<Pipe>& pipe) {
  const std::lock_guard lock(mutex_);
  if (pipe_ != pipe) return;
  pipe_ = nullptr;
  lost_ns_ = MonotonicNs();
}

void Proxy::Heard() {
  const std::lock_guard lock(mutex_);
  heard_ns_ = MonotonicNs();
}

// Whether it is over: also once the connection is gone for longer than the grace. One that brings
// nothing for the stall limit is as good as gone: its worker may make another. But on ps/0 alone,
// which is asked at each step and hears SayAlive().
bool Proxy::Gone() {
  const std::lock_guard lock(mutex_);
  const std::int64_t now = MonotonicNs();
  const WaitOptions& options = life_->options();
  const auto quiet_limit = std::max(options.stall_limit, served_.options.quiet_limit);
  if (pipe_ != nullptr && lead_ != nullptr && options.on_stall != OnStall::kWait &&
      now - heard_ns_ > quiet_limit.count()) {
    pipe_ = nullptr;
    lost_ns_ = now;
  }
  if (pipe_ != nullptr) return ending_;
  if (now - lost_ns_ > served_.options.grace.count()) ending_ = true;
  if (hurry_ns_ != 0 && now - std::max(lost_ns_, hurry_ns_) > served_.options.ended_grace.count()) {
    ending_ = true;
  }
  return ending_;
}

// True if a message came.
bool Proxy::Listen(std::chrono::nanoseconds patience) {
  const std::shared_ptr<Pipe> pipe = CurrentPipe();
  if (pipe == nullptr) return false;
  Result<Arrival> arrival = pipe->Receive(Deadline::After(patience));
  if (!arrival.ok()) {
    if (arrival.status().code() != Code::kDeadlineExceeded) LosePipe(pipe);
    return false;
  }
  Heard();
  Handle(pipe, std::move(*arrival));
  return true;
}

std::chrono::nanoseconds Proxy::LookPause() const {
  const std::lock_guard lock(mutex_);
  const bool quiet = MonotonicNs() - heard_ns_ > std::chrono::nanoseconds(kQuiet).count();
  return quiet ? kQuietLook : kLook;
}

void Proxy::Run() {
  while (!Gone()) {
    if (next_) {
      const Waiting next = std::move(*next_);
      next_.reset();
      Handle(next.pipe, next.arrival);
    } else if (!Listen(LookPause())) {
      std::unique_lock lock(mutex_);
      if (pipe_ == nullptr && !ending_) changed_.wait_for(lock, kLook);
    }
  }
  End();
}

// During a step. False: it is to end.
bool Proxy::GoOn() {
  const std::shared_ptr<Pipe> from = from_;
  bool came = true;
  while (came && !next_ && !Gone()) came = Listen({});
  from_ = from;
  return !came;
}

void Proxy::Handle(const std::shared_ptr<Pipe>& pipe, Arrival arrival) {
  from_ = pipe;
  const Result<Request> decoded = DecodeRequest(arrival.header);
  if (!decoded.ok() || decoded->session != session_) {
    Answer refusal;
    refusal.status =
        decoded.ok() ? InvalidArgument("this connection is another session's") : decoded.status();
    Reply(Request(), std::move(refusal));
    return;
  }
  const Request& request = *decoded;
  if (request.flags & kStopToo) shard_.Stop();
  const KindInfo& info = InfoOf(request.kind);
  if (info.quick) {
    Reply(request, Quick(request));
    return;
  }
  if (request.id < step_) return;  // nobody waits for it any more
  if (request.id == step_) {
    Answer answer = answer_;
    answer.working = done_ == Done::kNot;
    // Its values would meet the gradient of the next step, and both sides would wait.
    const bool crossing =
        answer.values && answered_by_ == from_.get() &&
        MonotonicNs() - answered_ns_ < std::chrono::nanoseconds(kCrossing).count();
    if (done_ == Done::kNot) Reply(request, std::move(answer));
    if (done_ == Done::kDone && !crossing) ReplyToStep(request, std::move(answer));
    return;
  }
  if (request.again) {
    Answer unread;
    unread.unread = true;
    Reply(request, std::move(unread));
    return;
  }
  if (done_ == Done::kNot) {
    next_ = Waiting{pipe, std::move(arrival)};
    return;
  }
  const std::uint64_t before = std::exchange(step_, request.id);
  done_ = Done::kNot;
  answer_ = Answer();
  bulk_ = arrival.bulk_floats;
  Answer answer = Step(request);
  if (done_ == Done::kUnread) step_ = before;
  if (done_ != Done::kNot) return;
  done_ = Done::kDone;
  answer_ = answer;
  if (Gone()) return;  // it may go on with the next ps, or another proxy
  // It may have come back meanwhile.
  if (const std::shared_ptr<Pipe> now = CurrentPipe()) from_ = now;
  ReplyToStep(request, std::move(answer));
}

void Proxy::ReplyToStep(const Request& request, Answer answer) {
  Reply(request, std::move(answer));
  answered_by_ = from_.get();
  answered_ns_ = MonotonicNs();
}

void Proxy::Reply(const Request& request, Answer answer) {
  answer.to = request.kind;
  answer.session = session_;
  answer.id = request.id;
  // Before the values: what it says of them is not too much.
  answer.state = StateNow();
  std::span<const float> bulk;
  if (std::exchange(answer.values, false) && answer.status.ok() && !answer.working) {
    PulledShard pulled;
    if (shard_.Pull(&pulled).ok()) {
      answer.values = true;  // also where there are none
      answer.version = pulled.version;
      bulk = {pulled.values, memory_.floats};
    }
#if defined(PASSEL_ATOMIC_VALUES)
    // ThreadSanitizer sees the system call that reads them.
    copy_.resize(memory_.floats);
    shard_.CopyAll(copy_.data());
    bulk = copy_;
#endif
  }
  const std::shared_ptr<Pipe> pipe = from_;
  if (!pipe->Send(Encode(answer), bulk).ok()) LosePipe(pipe);
  Heard();  // a large answer takes its time
}

State Proxy::StateNow() {
  State state;
  state.serial = ++serial_;
  state.epoch = life_->epoch();
  state.alive = life_->CheckAlive();
  state.initialized = shard_.initialized();
  state.engine = EngineCounts(memory_.tasks[worker_].counters);
  state.stopped = memory_.state->stop.load(std::memory_order_acquire) != 0;
  if (lead_ == nullptr) return state;
  // The round before the change: who hears that the last round is complete asks for it no more, and
  // must hear in the same answer that a change is due, or waits for a round that nobody else
  // begins.
  state.completed_round = lead_->completed_round();
  Failpoint("lead.state");
  state.change_due = lead_->ChangeDue();
  state.global_step = lead_->global_step();
  state.mode = lead_->CurrentMode().Pack();
  state.clock_lead = lead_->ClockLead();
  return state;
}

}  // namespace passel::fabric

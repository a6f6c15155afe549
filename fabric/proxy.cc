#include "fabric/proxy.h"

#include <fmt/core.h>

#include <utility>

#include "base/clock.h"
#include "fabric/counter_report.h"
#include "store/membership.h"

namespace passel::fabric {
namespace {

constexpr std::chrono::milliseconds kLook{20};  // for another pipe, or the end

EngineOptions OptionsOf(const ServedShard& served, const Hello& hello) {
  EngineOptions options;
  options.spin = served.options.spin;
  options.stall_limit = std::chrono::nanoseconds(hello.stall_limit_ns);
  options.join_limit = std::chrono::nanoseconds(hello.join_limit_ns);
  options.on_stall = hello.on_stall;
  options.eviction = Eviction::kFence;
  options.names = {hello.chief, hello.chief_name};
  return options;
}

// A worker that comes back and finds no proxy: the ps was started again, or took it for dead. On
// the lead it may go on as another life, unless somebody else has, or it was too slow for the
// others, or the memory is another. The other shards cannot give it another life.
Status MayComeBack(const ShardMemory& memory, const Hello& hello, std::uint32_t former,
                   const WorkerNames& names) {
  if (hello.worker < 0 || hello.worker >= memory.num_workers) return {};  // Join() says it
  const bool leads = hello.shard == 0;
  const bool comes_back = leads ? hello.epoch != 0 : hello.mode != Hello::kNoMode;
  if (!comes_back) return {};
  const TaskState now = StateOf(memory, hello.worker);
  const bool over =
      now.phase == Phase::kDead || (now.phase == Phase::kRunning && former == now.epoch);
  if (leads && now.epoch == hello.epoch && over) return {};
  return Aborted(
      fmt::format("{} cannot go on: its life was ended while its connection was gone; "
                  "start it again",
                  names(hello.worker)));
}

// Lives are counted by ps/0: where a later one has been seen, it has lost its count, and its
// values.
Status CheckEpoch(const ServedShard& served, const Request& request, const WorkerNames& names) {
  const Hello& hello = request.hello;
  if (served.shard == 0 || hello.worker < 0 || hello.worker >= served.memory.num_workers) return {};
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
  const EngineOptions options = OptionsOf(served, hello);
  // Never a process of this host, whose kernel knows nothing about it.
  const ProcessIdentity who{hello.pid, 0, request.session, 0};
  const bool leads = served.shard == 0;
  PASSEL_RETURN_IF_ERROR(MayComeBack(served.memory, hello, former, options.names));
  PASSEL_RETURN_IF_ERROR(CheckEpoch(served, request, options.names));
  const ShardRules rules = served.plan.Rules();
  // Not dead: no round is to be decided between two lives of this worker.
  if (former != 0) AwaitSuccessor(served.memory, hello.worker, former);
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

Proxy::Proxy(const ServedShard& served, const Request& hello, std::shared_ptr<LocalWorker> life)
    : served_(served),
      memory_(served.memory),
      session_(hello.session),
      worker_(hello.hello.worker),
      life_(std::move(life)),
      lead_(served.shard == 0 ? std::make_unique<LocalLead>(life_) : nullptr),
      shard_(memory_, life_),
      mode_(served.plan.mode),
      step_(hello.hello.first_step == 0 ? 0 : hello.hello.first_step - 1),
      lost_ns_(MonotonicNs()) {}

// --- Its connection ------------------------------------------------------------------------------

bool Proxy::Attach(std::unique_ptr<Pipe>& pipe) {
  const std::lock_guard lock(mutex_);
  if (ending_) return false;
  pipe_ = std::move(pipe);
  greet_ = true;
  changed_.notify_all();
  return true;
}

void Proxy::End() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  MarkDead(memory_, worker_, life_->epoch());
}

bool Proxy::Ends() const {
  const std::lock_guard lock(mutex_);
  return ending_;
}

bool Proxy::Waits() const {
  const std::lock_guard lock(mutex_);
  return ending_ || pipe_ == nullptr;
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

void Proxy::Run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (pipe_ == nullptr) changed_.wait_for(lock, kLook);
      if (pipe_ == nullptr && MonotonicNs() - lost_ns_ > served_.options.grace.count()) {
        ending_ = true;
      }
      if (ending_) break;
    }
    if (next_) {
      const Waiting next = std::move(*next_);
      next_.reset();
      Handle(next.pipe, next.arrival);
      continue;
    }
    const std::shared_ptr<Pipe> pipe = CurrentPipe();
    if (pipe == nullptr) continue;
    Result<Arrival> arrival = pipe->Receive(Deadline::After(kLook));
    if (arrival.ok()) {
      Handle(pipe, std::move(*arrival));
    } else if (arrival.status().code() != Code::kDeadlineExceeded) {
      LosePipe(pipe);
    }
  }
  End();
}

// During a step. False: it is to end.
bool Proxy::GoOn() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return false;
      if (pipe_ == nullptr) return MonotonicNs() - lost_ns_ <= served_.options.grace.count();
    }
    const std::shared_ptr<Pipe> from = from_;
    const std::shared_ptr<Pipe> pipe = CurrentPipe();
    Result<Arrival> arrival = pipe->Receive(Deadline::After({}));
    if (arrival.ok()) {
      Handle(pipe, std::move(*arrival));
    } else if (arrival.status().code() != Code::kDeadlineExceeded) {
      LosePipe(pipe);
    }
    from_ = from;
    if (next_) return false;
    if (!arrival.ok()) return true;
  }
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
  const KindInfo& info = InfoOf(request.kind);
  if (info.quick) {
    Reply(request, Quick(request));
    return;
  }
  if (request.id < step_) return;  // nobody waits for it any more
  if (request.id == step_) {
    Answer answer = answer_;
    answer.working = done_ == Done::kNot;
    if (done_ == Done::kNot || done_ == Done::kDone) Reply(request, std::move(answer));
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
  if (Ends()) return;  // it may go on with the next ps, or another proxy
  // It may have come back meanwhile.
  if (const std::shared_ptr<Pipe> now = CurrentPipe()) from_ = now;
  Reply(request, std::move(answer));
}

void Proxy::Reply(const Request& request, Answer answer) {
  answer.to = request.kind;
  answer.session = session_;
  answer.id = request.id;
  // Before the values: what it says of them is not too much.
  answer.state = StateNow();
  std::span<const float> bulk;
  if (answer.values && answer.status.ok() && !answer.working) {
    PulledShard pulled;
    if (shard_.Pull(&pulled).ok()) {
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
  answer.values = !bulk.empty();
  const std::shared_ptr<Pipe> pipe = from_;
  if (!pipe->Send(Encode(answer), bulk, Deadline::After(kMessageLimit)).ok()) LosePipe(pipe);
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
  state.change_due = lead_->ChangeDue();
  state.global_step = lead_->global_step();
  state.completed_round = lead_->completed_round();
  state.mode = lead_->CurrentMode().Pack();
  state.clock_lead = lead_->ClockLead();
  return state;
}

}  // namespace passel::fabric

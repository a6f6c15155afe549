// What a proxy does for each kind of request.

#include <fmt/core.h>

#include <algorithm>

#include "base/failpoint.h"
#include "fabric/counter_report.h"
#include "fabric/proxy.h"
#include "store/membership.h"
#include "store/mode_change.h"

namespace passel::fabric {
namespace {

// How long a step waits before it looks after messages again: twice as long each time.
constexpr std::chrono::milliseconds kFirstSlice{5}, kLongestSlice{160};
constexpr std::size_t kDroppedAtOnce = std::size_t{1} << 16;         // floats
constexpr std::uint64_t kMostRounds = (std::uint64_t{1} << 40) - 1;  // Decision

std::string SizeMismatch(const Request& request, std::size_t floats, std::size_t expected) {
  return fmt::format("a request to {} brings {} values, and the shard has {}",
                     InfoOf(request.kind).name, floats, expected);
}

}  // namespace

Status Proxy::CheckPlace(const KindInfo& info) const {
  if (!info.lead || lead_ != nullptr) return {};
  return InvalidArgument(fmt::format("only ps/0 answers requests to {}", info.name));
}

Answer Proxy::Quick(const Request& request) {
  Answer answer;
  answer.status = CheckPlace(InfoOf(request.kind));
  if (!answer.status.ok()) return answer;
  switch (request.kind) {
    case Kind::kHello:
      if (lead_ != nullptr) answer.report = MakeReport(lead_->counters());
      break;
    case Kind::kAsk:
      answer.version = memory_.state->version.load(std::memory_order_acquire);
      // Relaxed: written before `initialized`, which the state of the answer says.
      answer.number = memory_.state->cohort.load(std::memory_order_relaxed);
      break;
    case Kind::kMembers:
      answer.members = lead_->membership();
      break;
    case Kind::kMissing:
      if (request.slot < static_cast<int>(WaitingOn::kRound) ||
          request.slot > static_cast<int>(WaitingOn::kChange)) {
        answer.status = InvalidArgument("a request asks for what nobody waits for");
        break;
      }
      answer.members = lead_->Missing(static_cast<WaitingOn>(request.slot), request.number);
      break;
    case Kind::kHolders:
      answer.members = shard_.HoldersIn(request.number);
      break;
    case Kind::kStop:
      shard_.Stop();  // on the lead the word that counts
      break;
    case Kind::kSayAlive:
      lead_->SayAlive();
      break;
    case Kind::kSetRates: {
      if (request.id < rates_id_) {
        // One that was repeated comes late, and would bring former rates back.
        answer.status = Cancelled("later rates were set");
        break;
      }
      rates_id_ = request.id;
      const Result<std::uint32_t> set = shard_.SetRates(request.rates);
      answer.status = set.status();
      if (set.ok()) answer.number = *set;
      break;
    }
    default:
      break;
  }
  return answer;
}

template <typename Wait>
Status Proxy::InSlices(const Request& request, Wait&& wait) {
  const Deadline deadline = Deadline::After(std::chrono::nanoseconds(request.remaining_ns));
  for (std::chrono::nanoseconds slice = kFirstSlice;;
       slice = std::min<std::chrono::nanoseconds>(2 * slice, kLongestSlice)) {
    Status status = wait(deadline.Sooner(slice));
    if (status.code() != Code::kDeadlineExceeded || deadline.Expired()) return status;
    if (GoOn()) continue;
    Failpoint("step.given_up");
    done_ = Done::kGivenUp;
    return Cancelled("this step was given up");
  }
}

// What a request asks for must be possible in this shard, whoever sends it.
Status Proxy::CheckStep(const Request& request) const {
  const KindInfo& info = InfoOf(request.kind);
  PASSEL_RETURN_IF_ERROR(CheckPlace(info));
  std::size_t expected = 0;
  const bool has_gradient = request.kind == Kind::kUpdate || request.kind == Kind::kStage ||
                            (request.kind == Kind::kRound && (request.flags & kStageIt));
  if (has_gradient) expected = memory_.floats;
  if (request.kind == Kind::kOpen) {
    expected = memory_.floats *
               static_cast<std::size_t>(1 + (request.start.with_slots ? memory_.num_slots : 0));
  }
  if (bulk_ != expected) return InvalidArgument(SizeMismatch(request, bulk_, expected));
  const bool of_rounds = request.kind == Kind::kStage || request.kind == Kind::kApplyRound ||
                         request.kind == Kind::kRound || request.kind == Kind::kFinishRound;
  const bool of_updates = request.kind == Kind::kUpdate || request.kind == Kind::kCount;
  if ((of_rounds && !IsRoundMode(mode_)) || (of_updates && IsRoundMode(mode_))) {
    return FailedPrecondition(
        fmt::format("mode {} has no requests to {}", ModeName(mode_), info.name));
  }
  if (request.kind == Kind::kUpdate &&
      (request.slot < 0 || request.slot >= memory_.gradient_slots)) {
    return InvalidArgument(fmt::format("gradient slot {} is out of range: there are {}",
                                       request.slot, memory_.gradient_slots));
  }
  if (info.parts & kGrantPart) {
    for (int k = memory_.num_workers; k < kMaxWorkers; ++k) {
      if (request.grant.Counts(k)) {
        return InvalidArgument(
            fmt::format("a round counts worker {}, and there are {}", k, memory_.num_workers));
      }
    }
    if (request.grant.count < 1) return InvalidArgument("a round counts nobody");
  }
  const std::uint64_t round = info.parts & kGrantPart ? request.grant.round : request.number;
  if (of_rounds && request.kind != Kind::kStage && (round < 1 || round > kMostRounds)) {
    return InvalidArgument(fmt::format("there is no round {}", round));
  }
  return {};
}

template <typename Apply>
Status Proxy::Once(const Request& request, Answer* answer, Apply&& apply) {
  RequestRecord& record = memory_.tasks[worker_].request;
  // Relaxed: this worker's proxies alone write here, and one follows the other.
  const bool same = record.session.load(std::memory_order_relaxed) == session_;
  if (same && record.ended.load(std::memory_order_acquire) == request.id) {
    answer->number = record.version.load(std::memory_order_relaxed);
    answer->step = record.global_step.load(std::memory_order_relaxed);
    return {};
  }
  if (same && record.begun.load(std::memory_order_relaxed) == request.id) {
    return Aborted(
        fmt::format("an update of {} was applied in part when ps/{} died: start this worker again",
                    life_->options().names(worker_), served_.shard));
  }
  PASSEL_RETURN_IF_ERROR(life_->CheckAlive());
  PASSEL_RETURN_IF_ERROR(CheckMode());
  if (!same) {
    record.begun.store(0, std::memory_order_relaxed);
    record.ended.store(0, std::memory_order_relaxed);
    record.session.store(session_, std::memory_order_release);
  }
  record.begun.store(request.id, std::memory_order_release);
  Failpoint("request.begun");
  PASSEL_RETURN_IF_ERROR(apply(&answer->number));
  if (lead_ != nullptr && (request.kind == Kind::kCount || (request.flags & kCount))) {
    PASSEL_RETURN_IF_ERROR(lead_->CountUpdate(&answer->step));
  }
  record.version.store(answer->number, std::memory_order_relaxed);
  record.global_step.store(answer->step, std::memory_order_relaxed);
  // Release: who sees that it ended sees what came of it.
  record.ended.store(request.id, std::memory_order_release);
  Failpoint("request.ended");
  return {};
}

Answer Proxy::Step(const Request& request) {
  Answer answer;
  answer.values = (request.flags & kValues) != 0;
  answer.status = CheckStep(request);
  if (!answer.status.ok()) return answer;
  // Nothing of a life that is over is written: its slot and its counters are its successor's.
  if (request.kind != Kind::kLeave) answer.status = life_->CheckAlive();
  if (!answer.status.ok()) return answer;
  if (lead_ != nullptr && (request.flags & kReport)) TakeReport(request.report, &lead_->counters());
  switch (request.kind) {
    case Kind::kUpdate:
      return Update(request);
    case Kind::kRound:
      return Round(request);
    case Kind::kCount:
      answer.status = Once(request, &answer, [](Version*) { return Status(); });
      if (answer.status.ok() && (request.flags & kSlowest)) LookAtSlowest(&answer);
      break;
    case Kind::kAwaitInitialized:
      answer.status =
          InSlices(request, [&](Deadline slice) { return shard_.WaitUntilInitialized(slice); });
      if (answer.status.code() == Code::kDeadlineExceeded) {
        answer.status = DeadlineExceeded(
            "the chief has not initialised the variables in time: start it, or wait longer");
      }
      if (lead_ != nullptr) answer.report = MakeReport(lead_->counters());  // its cursor
      break;
    case Kind::kOpen:
      answer.status = OpenShard(request);
      break;
    case Kind::kRestore:
      answer.status = shard_.initialized()
                          ? FailedPrecondition("the variables are initialised already")
                          : lead_->Restore(request.progress);
      answer.report = MakeReport(lead_->counters());
      break;
    case Kind::kLeave: {
      const Phase end =
          request.number == static_cast<std::uint64_t>(Phase::kDone) ? Phase::kDone : Phase::kLeft;
      if (lead_ != nullptr) {
        answer.status = lead_->Leave(end);
      } else {
        shard_.Leave(end);
      }
      break;
    }
    case Kind::kEnterMode:
      answer.status = EnterMode(request.mode);
      break;
    case Kind::kPrepareChange:
      answer.status = shard_.PrepareChange(request.number);
      break;
    case Kind::kAwaitChange:
      answer.status = InSlices(request, [&](Deadline slice) {
        const auto step = lead_->AwaitChange(slice);
        if (!step.ok()) return step.status();
        answer.yes = step->has_value();
        answer.number = step->value_or(0);
        return Status();
      });
      break;
    case Kind::kPublishChange:
      answer.status = lead_->PublishChange();
      break;
    case Kind::kAwaitSlowest:
      answer.status = InSlices(request, [&](Deadline slice) { return lead_->AwaitSlowest(slice); });
      answer.number = lead_->NearEnough(1) ? 1 : 0;
      break;
    case Kind::kStage:
      answer.status = CheckMode();
      if (!answer.status.ok()) break;
      answer.status = ReadBulk({shard_.gradient(0), memory_.floats});
      // Release: another proxy applies the round on the word of a lead that is elsewhere.
      Notify(memory_.state->event);
      break;
    case Kind::kApplyRound:
      (void)memory_.state->event.sequence.load(std::memory_order_acquire);  // what was staged
      answer.status = InSlices(
          request, [&](Deadline slice) { return shard_.ApplyRound(request.grant, slice); });
      break;
    case Kind::kFinishRound:
      answer.status = lead_->FinishRound(request.grant);
      break;
    case Kind::kAwaitCompletion:
      // Once more at the end, with what is left of the time.
      answer.yes = InSlices(request, [&](Deadline slice) {
                     return lead_->AwaitCompletion(request.number, slice) ? Status()
                            : lead_->stopped() ? Cancelled("the job was stopped")
                                               : DeadlineExceeded("not complete");
                   }).ok();
      break;
    case Kind::kDecided:
      answer.yes = DecidedRound(memory_) >= request.number;
      break;
    case Kind::kDecideNoMore:
      answer.status = lead_->DecideNoMore();
      break;
    default:  // kPull: nothing but the values
      break;
  }
  return answer;
}

Status Proxy::ReadBulk(std::span<float> into) {
  const auto go_on = [this] {
    Heard();  // the pipe has a limit of its own
    life_->Heartbeat();
    return !Gone() && life_->Alive();
  };
  // Sequentially consistent: either who ended this life sees it, or this sees that it is over.
  writes_.store(true, std::memory_order_seq_cst);
  Status status = go_on() ? from_->ReadBulk(into, go_on) : Cancelled("it is over");
  writes_.store(false, std::memory_order_seq_cst);
  PASSEL_RETURN_IF_ERROR(life_->CheckAlive());
  if (!status.ok()) {
    done_ = Done::kUnread;
    LosePipe(from_);
  }
  return status;
}

// Its sender is to hear the answer, not to wait until somebody reads.
Status Proxy::DropBulk() {
  std::vector<float> part(std::min(bulk_, kDroppedAtOnce));
  for (std::size_t left = bulk_; left > 0;) {
    const std::span<float> next = std::span(part).first(std::min(left, part.size()));
    PASSEL_RETURN_IF_ERROR(ReadBulk(next));
    left -= next.size();
  }
  return {};
}

Status Proxy::EnterMode(std::uint64_t word) {
  const ModeWord mode = ModeWord::Unpack(word);
  PASSEL_RETURN_IF_ERROR(served_.plan.CheckMode(mode.setting));
  if (lead_ != nullptr) {
    const ModeWord now = lead_->CurrentMode();
    if (mode.number > now.number) {
      return InvalidArgument(fmt::format("mode number {} has not begun", mode.number));
    }
    PASSEL_RETURN_IF_ERROR(lead_->EnterMode(mode));
  }
  PASSEL_RETURN_IF_ERROR(shard_.EnterMode(mode));
  mode_ = mode.setting.mode;
  mode_number_ = mode.number;
  return {};
}

// Refuses a worker that was away while the mode changed without it.
Status Proxy::CheckMode() const {
  if (CurrentModeNumber(memory_) == mode_number_) return {};
  return Aborted(fmt::format(
      "the mode of the job has changed without {}, which did not answer: start it again",
      life_->options().names(worker_)));
}

Status Proxy::OpenShard(const Request& request) {
  // On another shard than the first: a chief may have died before it came to that one.
  if (shard_.initialized() && lead_ != nullptr) {
    // Relaxed: written before `initialized`.
    if (memory_.state->cohort.load(std::memory_order_relaxed) == request.start.cohort) return {};
    return FailedPrecondition(
        "the variables are initialised already: values are never rolled back");
  }
  const int parts = request.start.with_slots ? 1 + memory_.num_slots : 1;
  for (int k = 0; k < parts; ++k) {
    PASSEL_RETURN_IF_ERROR(ReadBulk({shard_.contents(k), memory_.floats}));
  }
  return shard_.Open(request.start);
}

// Where ps/0 is not the only one, and all others have the update.
void Proxy::LookAtSlowest(Answer* answer) {
  answer->yes = lead_->AwaitSlowest(Deadline::After({})).ok();
  answer->number = lead_->NearEnough(1) ? 1 : 0;
}

Answer Proxy::Update(const Request& request) {
  Answer answer;
  const Deadline deadline = Deadline::After(std::chrono::nanoseconds(request.remaining_ns));
  answer.status = ReadBulk({shard_.gradient(request.slot), memory_.floats});
  if (!answer.status.ok()) return answer;
  answer.status = Once(request, &answer, [&](Version* before) {
    return shard_.Apply(request.slot, deadline, before);
  });
  if (!answer.status.ok()) return answer;
  answer.yes = lead_ != nullptr && (request.flags & kSlowest) != 0 &&
               lead_->AwaitSlowest(Deadline::After({})).ok();
  // ssp: values that were read before the wait are too old.
  answer.values = (request.flags & kValues) != 0 && ((request.flags & kSlowest) == 0 || answer.yes);
  return answer;
}

Answer Proxy::Round(const Request& request) {
  Answer answer;
  const std::uint64_t round = request.number;
  // Decided already: by a former life of this request, which it may count, or without us. Else
  // nobody can count us before we arrive: unless this life has, others do not count.
  answer.status = CheckMode();
  if (!answer.status.ok()) return answer;
  const bool late = DecidedRound(memory_) >= round;
  const bool arrived_before = passel::Arrival::Says(
      memory_.tasks[worker_].arrival.load(std::memory_order_seq_cst), life_->epoch(), round);
  if (request.flags & kStageIt) {
    answer.status =
        late || arrived_before ? DropBulk() : ReadBulk({shard_.gradient(0), memory_.floats});
    if (!answer.status.ok()) return answer;
  }
  if (!late && (request.flags & kArrive)) {
    answer.status = lead_->Arrive(round);
    if (!answer.status.ok()) return answer;
  }
  if ((request.flags & kAwait) == 0) return answer;
  if (DecidedRound(memory_) < round) {
    Answer arrived;
    arrived.working = true;
    Reply(request, std::move(arrived));
  }
  answer.status = InSlices(request, [&](Deadline slice) {
    Result<RoundGrant> grant = lead_->AwaitRound(round, slice);
    if (!grant.ok()) return grant.status();
    answer.grant = *grant;
    return Status();
  });
  if (!answer.status.ok()) return answer;
  const RoundGrant& grant = *answer.grant;
  // One that does not count us is for its members to apply.
  if ((request.flags & kApply) && grant.count > 0 && grant.Counts(worker_)) {
    answer.status =
        InSlices(request, [&](Deadline slice) { return shard_.ApplyRound(grant, slice); });
    if (!answer.status.ok()) return answer;
    answer.status = lead_->FinishRound(grant);
  }
  answer.values = (request.flags & kValues) != 0 && lead_->completed_round() >= round;
  return answer;
}

}  // namespace passel::fabric

// stopped_job.h - one job of three workers, of which one is stopped at a named place for a while
// and then continued; and what must hold of the others, of the values, and of it.
//
// A job is driven in turns that never wait, so that one thread looks after many.

#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "conformance/mode_plans.h"
#include "multiprocess/engine_job.h"
#include "multiprocess/snapshot.h"
#include "support/sanitized.h"
#include "support/temp_marker.h"

namespace passel::testing {

struct StopPlace {
  const char* mode;
  const char* wanted;  // the mode that the job is asked for; "": it keeps its own
  const char* optimizer;
  const char* failpoint;
  int hits;
  bool holds_up;  // somebody waits for who is stopped there

  bool joins() const { return std::string(failpoint).starts_with("join."); }
  /// It is in Phase::kJoining there.
  bool joining() const {
    const std::string place = failpoint;
    return joins() && place != "join.running" && place != "join.follow";
  }
  bool changes() const { return *wanted != 0; }
};

class StoppedJob {
 public:
  static constexpr int kWorkers = 3;
  static constexpr int kStallMs = kSanitized ? 1500 : 500;

  /// It is stopped for `factor` times what others bear with.
  StoppedJob(const StopPlace& place, double factor, Eviction eviction, int shards)
      : place_(place), factor_(factor), eviction_(eviction), shards_(shards) {
    if (factor > 1 && place.joining()) {
      // Nobody asks after one that holds nobody up, but another process that would be the same.
      if (place.holds_up) then_ = Then::kGivenUp;
      if (place.mode == std::string("locked")) then_ = Then::kReplaced;
    } else if (factor > 1 && place.holds_up) {
      then_ = Then::kEvicted;
    }
    limit_ns_ = place.joining() ? std::chrono::nanoseconds(kJoinPatience).count()
                                : std::int64_t{kStallMs} * 1'000'000;
  }

  std::string name() const {
    return std::string(place_.mode) + (place_.changes() ? " to " : "") + place_.wanted + ", " +
           place_.optimizer + ", " + place_.failpoint + ", for " + std::to_string(factor_) +
           " of the limit, " + std::to_string(shards_) + " shards, " +
           (eviction_ == Eviction::kKill ? "kill" : "fence");
  }
  bool waiting() const { return state_ == State::kNew; }
  bool starting() const { return state_ == State::kStarting || state_ == State::kRejoining; }
  bool over() const { return state_ == State::kOver; }

  void Start() {
    ModeSetting first = Setting(place_.mode);
    StorePlan plan = PlanIn(first, shards_, kWorkers);
    plan.optimizer =
        place_.optimizer == std::string("sgd") ? Sgd(1.0) : *ParseOptimizer(place_.optimizer);
    counts_ = place_.optimizer == std::string("sgd");
    reference_ = IsRoundMode(first.mode) && !counts_;
    workers_.clear();
    successor_.reset();
    job_ = std::make_unique<EngineJob>(plan, !reference_, kStallMs);
    job_->SetPace(kPauseUs, kTurnMs);
    marker_ = std::make_unique<TempMarker>();
    for (int k = 0; k < kWorkers; ++k) {
      workers_.push_back(job_->Start(k, 0, place_.joins() ? "" : Spec(), eviction_));
    }
    Enter(State::kStarting);
  }

  /// Goes on as far as it can at once.
  void Turn() {
    SCOPED_TRACE(name());
    if (!waiting() && !over() && MonotonicNs() - entered_ns_ > patience_ns_) {
      ADD_FAILURE() << "nothing happened any more in state " << static_cast<int>(state_);
      Enter(State::kOver);
    }
    const bool under_way = state_ == State::kStopped || state_ == State::kReplacing ||
                           state_ == State::kContinued || state_ == State::kSucceeding;
    if (under_way && !OnlyItEnded()) return;
    switch (state_) {
      case State::kNew:
      case State::kOver:
        break;
      case State::kStarting:
        TurnStarting();
        break;
      case State::kRejoining:
        TurnRejoining();
        break;
      case State::kStopped:
        TurnStopped();
        break;
      case State::kReplacing:
        if (Acked() < acked_ + 3) break;
        Continue();
        break;
      case State::kContinued:
        TurnContinued();
        break;
      case State::kSucceeding:
        if (Acked() < acked_ + 3) break;
        ExpectSuccessor();
        Stop();
        break;
      case State::kEnding:
        TurnEnding();
        break;
      case State::kLate:
        TurnLate();
        break;
    }
    if (state_ == State::kOver) {
      workers_.clear();
      successor_.reset();
      job_.reset();
    }
  }

 private:
  enum class State {
    kNew,
    kStarting,    // until all take part
    kRejoining,   // until one is stopped
    kStopped,     // until its time is over
    kReplacing,   // until its successor is at work; it is stopped still
    kContinued,   // until it is at work again, or has ended
    kSucceeding,  // until its successor is at work
    kEnding,      // until the others have ended
    kLate,        // continued when the others have ended, until it has, too
    kOver,
  };
  enum class Then { kGoesOn, kEvicted, kGivenUp, kReplaced };

  static constexpr int kPauseUs = 10'000;
  static constexpr int kTurnMs = 50;  // far below the stall limit
  static constexpr std::int64_t kPatienceNs = 20'000'000'000;
  static constexpr int kAttempts = 5;

  void Enter(State state) {
    state_ = state;
    entered_ns_ = MonotonicNs();
    patience_ns_ = kPatienceNs;
  }
  std::string Spec() const {
    return std::string(place_.failpoint) + ":" + std::to_string(place_.hits) +
           ":stop:" + marker_->path();
  }
  Child& Victim() { return workers_[static_cast<std::size_t>(victim_)]; }
  std::uint64_t Acked() const { return job_->board().acked[victim_].load(); }
  bool Ended(Child& worker) { return worker.WaitEnded(std::chrono::milliseconds(0)); }

  void TurnStarting() {
    if (place_.joins() || place_.changes()) {
      if (!job_->AllTakePart()) return;
    }
    if (place_.changes()) {
      EXPECT_TRUE(WishForMode(job_->memory(0), Setting(place_.wanted)).ok());
    }
    if (place_.joins()) {
      Child& last = workers_[kWorkers - 1];
      last.Kill(SIGKILL);
      EXPECT_TRUE(last.WaitEnded(std::chrono::milliseconds(5000)));
      last = job_->Start(kWorkers - 1, 0, Spec(), eviction_);
    }
    Enter(State::kRejoining);
  }

  void TurnRejoining() {
    for (int k = 0; k < kWorkers; ++k) {
      Child& worker = workers_[static_cast<std::size_t>(k)];
      if (!worker.WaitStopped(std::chrono::milliseconds(0))) continue;
      victim_ = k;
      // Killed before we have seen it stopped: we were kept from running ourselves.
      if (worker.code() != -1000) return TryAgain();
      epoch_ = StateOf(job_->memory(0), k).epoch;
      acked_ = Acked();
      steps_ = job_->global_step();
      Enter(State::kStopped);
      patience_ns_ += static_cast<std::int64_t>(factor_ * static_cast<double>(limit_ns_));
      return;
    }
  }

  std::int64_t SilentNs(int worker, std::int64_t now) const {
    return now - job_->memory(0).tasks[worker].heartbeat_ns.load();
  }

  // When the others ended its life; 0: they did not.
  std::int64_t EndedNs(std::int64_t* step) const {
    const EventRing& ring = *job_->memory(0).events;
    for (const EventRecord& record : ring.records) {
      if (record.number.load() == 0 || record.worker.load() != victim_) continue;
      const TaskState state = TaskState::Unpack(record.state.load());
      if (state.epoch != epoch_ || (state.phase != Phase::kEvicted && state.phase != Phase::kDead))
        continue;
      *step = record.global_step.load();
      return record.time_ns.load();
    }
    return 0;
  }

  void TurnStopped() {
    const std::int64_t stopped_for = MonotonicNs() - entered_ns_;
    if (stopped_for < static_cast<std::int64_t>(factor_ * static_cast<double>(limit_ns_))) return;
    switch (then_) {
      case Then::kEvicted:
      case Then::kGivenUp: {
        std::int64_t step = 0;
        const std::int64_t ended_ns = EndedNs(&step);
        if (ended_ns == 0) return;  // patience has an end
        EXPECT_GE(SilentNs(victim_, ended_ns), limit_ns_) << "too early";
        if (job_->global_step() < step + 20) return;  // the others go on without it
        if (factor_ > 5) return Stop();
        if (then_ == Then::kGivenUp) return Continue();
        return Replace();
      }
      case Then::kReplaced:
        return Replace();
      case Then::kGoesOn:
        if (place_.holds_up && stopped_for > limit_ns_ * 3 / 4) return TryAgain();
        if (!place_.holds_up && job_->global_step() < steps_ + 5) return;  // they do not wait
        return Continue();
    }
  }

  void Replace() {
    successor_ = std::make_unique<Child>(job_->Start(victim_, 0, "", eviction_));
    Enter(State::kReplacing);
  }

  void Continue() {
    if (!Ended(Victim())) Victim().Kill(SIGCONT);
    Enter(State::kContinued);
  }

  void TurnContinued() {
    if (then_ == Then::kGoesOn) {
      if (Ended(Victim())) {
        ADD_FAILURE() << "it ended with " << Victim().code();
        return Enter(State::kOver);
      }
      if (Acked() >= acked_ + 3) Stop();
      return;
    }
    if (!Ended(Victim())) return;
    ExpectItsEnd();
    if (successor_ == nullptr) {
      successor_ = std::make_unique<Child>(job_->Start(victim_, 0, "", eviction_));
    }
    acked_ = Acked();
    Enter(State::kSucceeding);
  }

  void ExpectItsEnd() {
    if (then_ == Then::kEvicted && eviction_ == Eviction::kKill) {
      EXPECT_EQ(Victim().code(), -SIGKILL);
    } else {
      EXPECT_EQ(Victim().code(), then_ == Then::kReplaced ? kExitOther : kExitAborted);
    }
  }

  // It is at work, and known for what it is.
  void ExpectSuccessor() {
    for (int s = 0; s < shards_; ++s) {
      const ShardMemory& m = job_->memory(s);
      const TaskState state{epoch_ + 1, Phase::kRunning};
      EXPECT_EQ(StateOf(m, victim_), state);
      EXPECT_EQ(LoadIdentity(m.tasks[victim_], state.epoch).pid, successor_->pid());
    }
  }

  // Nobody's life was ended but that of the one whose it had to be, and of the one whose place it
  // took. On a busy machine somebody may be silent for the limit for want of a processor.
  bool OnlyItEnded() {
    for (const EventRecord& record : job_->memory(0).events->records) {
      if (record.number.load() == 0) continue;
      const TaskState state = TaskState::Unpack(record.state.load());
      if (state.phase != Phase::kEvicted && state.phase != Phase::kDead) continue;
      const int worker = record.worker.load();
      const Phase phase = then_ == Then::kEvicted ? Phase::kEvicted : Phase::kDead;
      if (then_ != Then::kGoesOn && worker == victim_ && state == (TaskState{epoch_, phase})) {
        continue;
      }
      if (place_.joins() && worker == victim_ && state.epoch == epoch_ - 1) continue;
      const std::int64_t silent_ns = SilentNs(worker, record.time_ns.load());
      if (silent_ns >= limit_ns_) {
        TryAgain();
      } else {
        ADD_FAILURE() << "worker " << worker << ", life " << state.epoch << ", phase "
                      << static_cast<int>(state.phase) << ", silent for " << silent_ns << " ns";
        Enter(State::kOver);
      }
      return false;
    }
    return true;
  }

  void TryAgain() {
    std::printf("%s: once more, this machine is busy\n", name().c_str());
    if (++attempts_ < kAttempts) return Start();
    ADD_FAILURE() << "it is too busy, or they are given up whatever they do";
    Enter(State::kOver);
  }

  // The job, at its end.
  void Stop() {
    job_->Stop();
    Enter(State::kEnding);
  }

  void TurnEnding() {
    const bool without_it = then_ != Then::kGoesOn;
    for (int k = 0; k < kWorkers; ++k) {
      if (k == victim_ && without_it) continue;
      if (!Ended(workers_[static_cast<std::size_t>(k)])) return;
    }
    if (successor_ != nullptr && !Ended(*successor_)) return;
    for (int k = 0; k < kWorkers; ++k) {
      if (k == victim_ && without_it) continue;
      EXPECT_EQ(workers_[static_cast<std::size_t>(k)].code(), 0) << "worker " << k;
    }
    if (successor_ != nullptr) {
      EXPECT_EQ(successor_->code(), 0);
    }
    if (factor_ < 5 || !without_it) return Verify();
    at_end_ = TakeSnapshot(*job_);
    if (!Ended(Victim())) Victim().Kill(SIGCONT);
    Enter(State::kLate);
  }

  void TurnLate() {
    if (!Ended(Victim())) return;
    // If its round is complete it learns first that the job was stopped.
    if (Victim().code() != 0) ExpectItsEnd();
    // It may end what it was in the middle of, where that is not a round.
    const std::size_t blocks = place_.failpoint == std::string("push.claimed") ? 1 : 0;
    EXPECT_LE(BlocksThatDiffer(at_end_, TakeSnapshot(*job_)), blocks)
        << "it wrote what is not its own";
    Verify();
  }

  void Verify() {
    Enter(State::kOver);
    const std::uint64_t lost_lives = (then_ != Then::kGoesOn ? 1u : 0u) + (place_.joins() ? 1 : 0);
    const Mode first = Setting(place_.mode).mode;
    const auto [low, high] = job_->Range();
    EXPECT_TRUE(std::isfinite(low) && std::isfinite(high));
    if (place_.changes()) {
      if (IsLossless(first) && IsLossless(Setting(place_.wanted).mode)) {
        job_->ExpectNothingLost(lost_lives);
      }
    } else if (IsRoundMode(first)) {
      const bool whole = then_ == Then::kGoesOn && !place_.joins();
      const bool backup = Setting(place_.mode).number == 2;
      job_->ExpectRoundsApplied(job_->memory(0).state->completed_round.load(),
                                backup  ? 0
                                : whole ? 7u
                                        : 7u & ~(std::uint64_t{1} << victim_));
    } else if (counts_) {
      if (first == Mode::kLocked) {
        EXPECT_GE(low, static_cast<float>(job_->acked()));
      }
      // In ssp the last pushes of a job that is stopped stand, but nobody waits for them to the
      // end.
      EXPECT_LE(high, static_cast<float>(job_->global_step()) + static_cast<float>(lost_lives));
    }
  }

  const StopPlace place_;
  const double factor_;
  const Eviction eviction_;
  const int shards_;
  Then then_ = Then::kGoesOn;
  std::int64_t limit_ns_ = 0;  // for which others bear with it
  bool counts_ = false;        // the values count updates
  bool reference_ = false;     // they are compared with the reference

  std::unique_ptr<EngineJob> job_;
  std::unique_ptr<TempMarker> marker_;
  std::vector<Child> workers_;
  std::unique_ptr<Child> successor_;
  State state_ = State::kNew;
  std::int64_t entered_ns_ = 0;
  std::int64_t patience_ns_ = kPatienceNs;
  int attempts_ = 0;
  int victim_ = 0;
  std::uint32_t epoch_ = 0;  // the life of it that is stopped
  std::uint64_t acked_ = 0;  // its pushes until then
  std::int64_t steps_ = 0;   // the job's
  Snapshot at_end_;
};

}  // namespace passel::testing

#include "shm/ps_host.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "cluster/json_message.h"
#include "cluster/patience.h"
#include "shm/layout.h"
#include "store/membership.h"

namespace passel::shm {
namespace {

// Workers without a connection to us (after a restart of the ps) are looked after this often.
constexpr std::chrono::milliseconds kProbeEvery{250};

constexpr std::size_t kMaxDataFiles = 8;

// Two descriptions of data are kept: they tell already that workers differ.
constexpr std::size_t kMaxDataTold = 2;

// Checksum of the examples that were told of; "": it is not said.
std::string ContentOf(const Json& about) {
  const Json* const content = about.Find("crc32");
  return content != nullptr && content->text() != nullptr ? *content->text() : "";
}

}  // namespace

PsHost::PsHost(const PsHostOptions& options, const JobToken& token, FileDescriptor listening,
               std::optional<Arena> arena)
    : options_(options),
      token_(token),
      arena_(std::move(arena)),
      arena_kept_(!options.supervised || arena_.has_value()),
      readers_(options.names),
      server_(std::move(listening), token, options_.me, *this),
      caretaker_(options.names) {
  // It comes from the supervisor, which has written it.
  if (Result<Json> data = ParseJson("--job_data", options.data, 1); data.ok() && data->object()) {
    data_told_.push_back(std::move(*data));
  }
}

PsHost::End PsHost::Serve(int stop_fd) {
  std::int64_t next_probe_ns = 0;
  std::int64_t nobody_since_ns = 0;
  Patience start(Deadline::After(options_.start_wait), [this] {
    LogInfo("ps/{} still waiting for the plan of the chief, {}", options_.me.index,
            options_.names.chief_name);
  });
  for (;;) {
    std::vector<int> watched;
    for (const Link& link : links_) watched.push_back(link.client.fd());
    if (stop_fd >= 0) watched.push_back(stop_fd);
    const std::vector<int> ready = server_.Poll(
        watched, readers_.NextLook(Deadline::After(arena_ ? kProbeEvery : kProbeEvery * 4)));
    for (const int fd : ready) {
      if (fd == stop_fd) return End::kStopped;
      const auto link = std::find_if(links_.begin(), links_.end(),
                                     [fd](const Link& l) { return l.client.fd() == fd; });
      if (link == links_.end()) continue;
      const std::string who = options_.names(link->worker);
      const Status status = ServeLink(link);
      if (status.ok() || status.code() == Code::kUnavailable) continue;
      LogWarning("{}: {}", who, status.message());
    }
    const std::int64_t now = MonotonicNs();
    if (!given_up_.ok() && (AllHaveHeard() || linger_.Expired())) return End::kGivenUp;
    if (!arena_) {
      if (options_.supervised) continue;
      if (stop_asked_) {
        server_.FailWaiting(Cancelled("the job was stopped before it began"));
        if (StillTellsFailure()) continue;
        return End::kStoppedEarly;
      }
      if (!start.Again({})) return End::kNobodyCame;
      continue;
    }
    if (now >= next_probe_ns) {
      next_probe_ns = now + std::chrono::nanoseconds(kProbeEvery).count();
      const nvtx::Range range(nvtx::Event::kWatch, options_.me.index);
      caretaker_.FindDead(arena_->memory(), [this](int worker) { return IsConnected(worker); });
      if (options_.look_on && !options_.look_on(arena_->memory())) return End::kStopped;
    }
    if (options_.supervised) continue;
    const ShardMemory& memory = arena_->memory();
    caretaker_.TellDepartures(memory);
    if (start.deadline().Expired() || Stopped()) {
      caretaker_.GiveUpThoseWhoNeverCame(memory, options_.start_wait, /*quiet=*/Stopped());
    }
    if (!AllWorkersEnded(memory)) {
      nobody_since_ns = 0;
      continue;
    }
    if (StillTellsFailure() || StillHearsOfFailure()) continue;
    if (AllWorkersDone(memory)) return End::kWorkersDone;
    const auto done = std::ranges::count(Membership(memory), Phase::kDone, &Member::phase);
    // Some died, left or never came, and nobody is running. The job was stopped, or it waits.
    const bool stopped = memory.state->stop.load(std::memory_order_acquire) != 0;
    if (nobody_since_ns == 0) {
      nobody_since_ns = now;
      if (!stopped) {
        LogInfo("no worker is running ({}): waiting {} s for one to come back", DescribeWorkers(),
                std::chrono::duration_cast<std::chrono::seconds>(options_.rejoin_limit).count());
      }
    }
    if (stopped || now - nobody_since_ns > options_.rejoin_limit.count()) {
      return done > 0 ? End::kFewerDone : End::kNobodyDone;
    }
  }
}

bool PsHost::Stopped() const {
  return stop_asked_ ||
         (arena_ && arena_->memory().state->stop.load(std::memory_order_acquire) != 0);
}

Status PsHost::Admit(const Peer& peer) {
  if (peer.role != Role::kWorker) return {};
  if (peer.index >= options_.num_workers) {
    return InvalidArgument(fmt::format("worker index {} is out of range: this job has {} workers",
                                       peer.index, options_.num_workers));
  }
  for (const Peer& other : workers_) {
    if (other.index != peer.index || other.identity == peer.identity) continue;
    if (ProbeLiveness(other.identity) == Liveness::kDead) continue;
    return RunsAlready(options_.names, peer.index, other.pid);
  }
  workers_.push_back(peer);
  return {};
}

int PsHost::ArenaFd(const Peer& peer) {
  if (peer.role == Role::kPs) return options_.held ? options_.held(peer.index) : -1;
  if (!arena_ || (!arena_kept_ && peer.role != Role::kSupervisor)) return -1;
  if (peer.role != Role::kEvaluator) return arena_->fd();
  if (!arena_for_reading_.valid()) {
    const std::string path = fmt::format("/proc/self/fd/{}", arena_->fd());
    arena_for_reading_.Reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!arena_for_reading_.valid()) {
      LogWarning("no evaluator can watch: {}",
                 ErrnoStatus(errno, "cannot open the arena for reading").message());
    }
  }
  return arena_for_reading_.get();
}

Status PsHost::Answer(std::string_view request, const Peer& peer, Exchange& exchange) {
  struct Row {
    std::string_view request;
    Status (PsHost::*answer)(const Peer&, Exchange&);
  };
  static constexpr Row kRows[] = {
      {"arena", &PsHost::GetArena},      {"plan", &PsHost::AcceptPlan},
      {"offer_data", &PsHost::KeepData}, {"get_data", &PsHost::GetData},
      {"tell_data", &PsHost::DataTold},  {"kept", &PsHost::ArenaIsKept},
      {"status", &PsHost::GetStatus},    {"snapshot", &PsHost::TakeSnapshot},
      {"get_plan", &PsHost::GetPlan},    {"meet", &PsHost::Meet},
      {"go_on", &PsHost::GoOn},          {"set_mode", &PsHost::SetMode},
      {"scale", &PsHost::Scale},         {"stop", &PsHost::Stop},
      {"renew", &PsHost::Renew},         {"tell_score", &PsHost::ScoreTold},
      {"give_up", &PsHost::GiveUp},
  };
  const auto* row = std::ranges::find(kRows, request, &Row::request);
  if (row == std::end(kRows)) return FailedPrecondition("a ps does not answer that");
  if (!given_up_.ok() && peer.role == Role::kWorker) {
    heard_.insert(peer.index);
    return given_up_;
  }
  return (this->*row->answer)(peer, exchange);
}

Status PsHost::GetArena(const Peer& peer, Exchange& exchange) {
  const bool need_plan = WantsPlanFrom(peer);
  if (need_plan) exchange.answer["need_plan"] = true;
  PASSEL_ASSIGN_OR_RETURN(const bool wait, exchange.Argument(false));
  exchange.waits = !need_plan && (ArenaFd(peer) >= 0 || wait);
  // Of a job by hand that is ps/0.
  if (arena_ && peer.role == Role::kSupervisor) lead_holds_ = true;
  return {};
}

Status PsHost::ArenaIsKept(const Peer&, Exchange&) {
  Failpoint("ps.kept");
  if (arena_) arena_kept_ = true;
  return {};
}

bool PsHost::WantsPlanFrom(const Peer& peer) const {
  return !arena_ && peer.role == Role::kWorker && peer.index == options_.names.chief;
}

Status PsHost::AcceptPlan(const Peer& peer, Exchange& exchange) {
  if (exchange.request_fds.size() != 1) return DataLoss("a plan comes with one descriptor");
  PASSEL_ASSIGN_OR_RETURN(const std::string plan,
                          ReadConstantFile(exchange.request_fds[0].get(), kMaxPlanBytes));
  // If there is one, the chief compares its plan with the arena's.
  const Status made = arena_ ? Status() : MakeArena(peer, plan);
  if (!made.ok()) server_.FailWaiting(made);
  exchange.waits = made.ok();
  return made;
}

// The values of another ps are lost: ours are of no use without them.
Status PsHost::Renew(const Peer& peer, Exchange& exchange) {
  if (options_.supervised || peer.role != Role::kWorker || peer.index != options_.names.chief) {
    return PermissionDenied("only the chief of a job by hand may have an arena made anew");
  }
  if (exchange.request_fds.size() != 1) return DataLoss("a plan comes with one descriptor");
  PASSEL_ASSIGN_OR_RETURN(const std::string plan,
                          ReadConstantFile(exchange.request_fds[0].get(), kMaxPlanBytes));
  PASSEL_RETURN_IF_ERROR(CheckNobodyTrains());
  if (arena_) {
    LogWarning("ps/{} gives up its values, of {} updates: the chief begins with others",
               options_.me.index, arena_->memory().state->version.load(std::memory_order_relaxed));
    // Who has mapped it and has not joined yet leaves again.
    arena_->memory().state->stop.store(1, std::memory_order_seq_cst);
    Notify(arena_->memory().state->event);
  }
  if (options_.let_go) options_.let_go();
  readers_.LetGo();
  arena_.reset();
  arena_for_reading_.Reset();
  const Status made = MakeArena(peer, plan);
  if (!made.ok()) server_.FailWaiting(made);
  exchange.waits = made.ok();
  return made;
}

Status PsHost::CheckNobodyTrains() {
  if (!arena_) return {};
  const ShardMemory& memory = arena_->memory();
  (void)MarkDeadByKernel(memory);
  for (const Member& member : Membership(memory)) {
    if (member.phase != Phase::kRunning && member.phase != Phase::kJoining) continue;
    return FailedPrecondition(fmt::format(
        "{} (process {}) still trains on the values of ps/{} that are left: end it, then start the "
        "chief, {}, again",
        options_.names(member.worker), member.pid, options_.me.index, options_.names.chief_name));
  }
  return {};
}

Status PsHost::MakeArena(const Peer& peer, const std::string& plan_json) {
  if (!WantsPlanFrom(peer)) {
    return PermissionDenied(
        fmt::format("only the chief, {}, proposes a plan, not {}", options_.names.chief_name,
                    peer.role == Role::kWorker ? options_.names(peer.index) : NameOf(peer)));
  }
  PASSEL_ASSIGN_OR_RETURN(const StorePlan plan, PlanFromJson(plan_json));
  if (plan.num_workers != options_.num_workers || options_.me.index >= plan.variables.shards()) {
    return InvalidArgument(fmt::format(
        "the chief plans for {} ps and {} workers, ps/{} knows {} workers: give all tasks the same "
        "lists of hosts and --max_workers",
        plan.variables.shards(), plan.num_workers, options_.me.index, options_.num_workers));
  }
  PASSEL_ASSIGN_OR_RETURN(MemoryBudget budget, ReadMemoryBudget());
  if (options_.fits) PASSEL_RETURN_IF_ERROR(options_.fits(plan, budget));
  if (options_.memory_fraction < 1) {
    budget.available_bytes = static_cast<std::uint64_t>(
        options_.memory_fraction * static_cast<double>(budget.available_bytes));
    budget.limit =
        fmt::format("--memory_fraction {} of {}", options_.memory_fraction, budget.limit);
  }
  nvtx::Range range(nvtx::Event::kCreateArena, options_.me.index);
  PASSEL_ASSIGN_OR_RETURN(
      Arena arena,
      Arena::Create(plan, options_.me.index, {options_.me.job_id, options_.huge_pages}, budget));
  arena.Publish();
  range.Close();
  Failpoint("ps.published");
  if (!arena.huge_page_report().empty()) LogInfo("{}", arena.huge_page_report());
  LogDebug("arena of shard {}: {} bytes", options_.me.index, arena.bytes());
  arena_ = std::move(arena);
  lead_holds_ = false;
  heard_.clear();
  // Lives are counted anew in it, and whoever ends from now on is told of.
  caretaker_.BeginAnew();
  caretaker_.TellDepartures(arena_->memory());
  if (stop_asked_) StopJob();  // it came before there was anything to stop
  return {};
}

Status PsHost::KeepData(const Peer&, Exchange& exchange) {
  if (exchange.request_fds.size() != 1) return DataLoss("data comes with one descriptor");
  PASSEL_ASSIGN_OR_RETURN(const std::string key, exchange.Argument(std::string()));
  if (data_.size() < kMaxDataFiles || data_.contains(key)) {
    data_[key] = std::move(exchange.request_fds[0]);
  }
  return {};
}

Status PsHost::GetData(const Peer&, Exchange& exchange) {
  PASSEL_ASSIGN_OR_RETURN(const std::string key, exchange.Argument(std::string()));
  const auto found = data_.find(key);
  if (found != data_.end()) exchange.fds = {found->second.get()};
  return {};
}

Status PsHost::DataTold(const Peer& peer, Exchange& exchange) {
  if (exchange.argument.object() == nullptr) return DataLoss("data is told as an object");
  return KeepTold(peer.index, exchange.argument);
}

Status PsHost::ScoreTold(const Peer&, Exchange& exchange) {
  double accuracy = -1;
  std::int64_t step = -1;
  JsonReader members = ReadMessage(exchange.argument);
  members("accuracy", accuracy);
  members("global_step", step);
  PASSEL_RETURN_IF_ERROR(AsDataLoss(members.Finish()));
  if (!(accuracy >= 0 && accuracy <= 1) || step < 0) {
    return DataLoss("a score is an accuracy from 0 to 1 and a global step");
  }
  if (arena_) KeepIfBest(arena_->memory().state->evaluated, accuracy, step);
  return {};
}

Status PsHost::KeepTold(int worker, const Json& about) {
  const std::string text = about.Write();
  if (text.size() > kMaxDataText) {
    return InvalidArgument(fmt::format(
        "a description of data has at most {} bytes, this one has {}: use a shorter path",
        kMaxDataText, text.size()));
  }
  const std::string content = options_.same_data ? ContentOf(about) : "";
  for (const Json& told : data_told_) {
    const std::string other = ContentOf(told);
    if (content.empty() || other.empty()) continue;
    if (content != other) {
      return FailedPrecondition(
          fmt::format("{} trains on examples with checksum {}, and another worker of this job on "
                      "those with {}: "
                      "give all tasks the same data set",
                      options_.names(worker), content, other));
    }
    // The same, from another folder of another host.
    if (worker != options_.names.chief) return {};
  }
  const auto known = std::ranges::find(data_told_, text, [](const Json& j) { return j.Write(); });
  if (worker == options_.names.chief) {
    if (known != data_told_.end()) data_told_.erase(known);
    if (!content.empty()) {
      std::erase_if(data_told_, [&](const Json& j) { return ContentOf(j) == content; });
    }
    data_told_.insert(data_told_.begin(), about);
    if (data_told_.size() > kMaxDataTold) data_told_.pop_back();
  } else if (known == data_told_.end() && data_told_.size() < kMaxDataTold) {
    data_told_.push_back(about);
  }
  return {};
}

Status PsHost::GetStatus(const Peer&, Exchange& exchange) {
  Json status = {{"job", options_.me.job_id},
                 {"ps", options_.me.index},
                 {"pid", ::getpid()},
                 {"alone", options_.alone},
                 {"chief", options_.names.chief_name},
                 {"data", WhatIsTold()}};
  if (!failure_.empty()) status["failure"] = failure_;
  if (!arena_) {
    Json joined = Json::MakeList();
    for (const Peer& worker : workers_) joined.Add(worker.index);
    status["joined"] = joined;
  }
  if (arena_ && options_.describe) status["arena"] = options_.describe(*arena_, options_.names);
  return exchange.AddText("passel.status", status.Write());
}

}  // namespace passel::shm

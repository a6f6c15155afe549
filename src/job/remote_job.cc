#include "job/remote_job.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/wait_check.h"
#include "cluster/endpoint.h"
#include "cluster/json_message.h"
#include "cluster/patience.h"
#include "io/checkpoint_files.h"
#include "job/job_config.h"
#include "job/other_parts.h"
#include "job/remote_facts.h"
#include "shm/layout.h"

namespace passel::job {
namespace {

// Until it is looked again whether a ps is here, or answers there.
constexpr std::chrono::milliseconds kLookPause{100};
constexpr std::chrono::seconds kConnectLimit{5}, kCheckedConnectLimit{3};
constexpr std::chrono::milliseconds kLookForStop{100};
// Of a ps, for what it answers at once unless it makes an arena.
constexpr std::chrono::seconds kAnswerLimit{15};
constexpr std::chrono::seconds kMetricsLimit{1}, kGiveUpLimit{2};

fabric::ControlOptions LineTo(const Task& task, Role role, int index, int shard,
                              const HostPort& address) {
  fabric::ControlOptions options;
  options.address = address;
  options.peer_index = shard;
  options.key = DoorKeyOf(task);
  TakeLease(task, &options);
  options.me = FactsOf(task, role, index);
  options.bulk = task.network;
  options.spin = WorkerSpin(task).value_or(options.spin);
  return options;
}

Status JobStopped() { return Cancelled("the job was stopped before this worker had joined"); }

}  // namespace

RemoteJob::RemoteJob(const Task& task, const RemoteJobOptions& options)
    : task_(task), options_(options) {}

Result<std::unique_ptr<RemoteJob>> RemoteJob::ConnectIfElsewhere(const Task& task,
                                                                 const RemoteJobOptions& options) {
  std::unique_ptr<RemoteJob> job(new RemoteJob(task, options));
  const Deadline deadline = Deadline::After(options.attach.start_wait);
  for (int shard = 0; shard < task.spec.num_tasks("ps"); ++shard) {
    PASSEL_RETURN_IF_ERROR(job->Find(shard, deadline));
  }
  if (job->Elsewhere().empty()) return std::unique_ptr<RemoteJob>();
  return job;
}

std::shared_ptr<fabric::ControlLine> RemoteJob::MakeLine(int shard) const {
  const bool worker = options_.role == Role::kWorker;
  fabric::ControlOptions options =
      LineTo(task_, options_.role, worker ? task_.Trainer() : task_.id.index, shard,
             ps_[static_cast<std::size_t>(shard)].address);
  options.gone = [](const Status& why) { LogWarning("{}", why.message()); };
  options.back = [shard] { LogInfo("ps/{} is back", shard); };
  if (worker) {
    options.stopped = [stopped = stopped_] { stopped->store(true, std::memory_order_release); };
  }
  return std::make_shared<fabric::ControlLine>(options);
}

Status RemoteJob::Find(int shard, Deadline deadline) {
  Ps& ps = ps_.emplace_back();
  PASSEL_ASSIGN_OR_RETURN(ps.address, task_.spec.Address({"ps", shard}));
  ps.line = MakeLine(shard);
  Status last;
  Patience patience(deadline, [&] {
    if (options_.attach.on_waiting) options_.attach.on_waiting(fmt::format("ps/{}", shard));
    LogInfo("{}", last.message());
  });
  do {
    if (Stopped()) return JobStopped();
    if (MayListen(task_.job_id, Role::kPs, shard)) return {};
    const Status tried = ps.line->Connect(deadline.Sooner(kConnectLimit));
    // A last try that the end cuts short says less than the one before it.
    if (last.ok() || tried.code() != Code::kDeadlineExceeded) last = tried;
    // It listens on its abstract socket before it opens a port.
    if (MayListen(task_.job_id, Role::kPs, shard)) {
      ps.line = MakeLine(shard);  // it is no guest there
      return {};
    }
    ps.elsewhere = last.ok();
    if (last.ok()) return {};
    if (last.code() != Code::kUnavailable && last.code() != Code::kDeadlineExceeded) return last;
  } while (patience.Again(kLookPause));
  return DeadlineExceeded(fmt::format(
      "ps/{} of job {} did not start within {:g} s, neither on this host nor where the lists have "
      "it ({}): start it, or raise --start_wait",
      shard, task_.job_id, ToSeconds(options_.attach.start_wait), last.message()));
}

std::string RemoteJob::Elsewhere() const {
  std::string text;
  for (std::size_t s = 0; s < ps_.size(); ++s) {
    if (!ps_[s].elsewhere) continue;
    text += fmt::format("{}ps/{} at {}", text.empty() ? "" : ", ", s, ps_[s].address.ToString());
  }
  return text;
}

std::string RemoteJob::Here() const {
  std::string text;
  for (std::size_t s = 0; s < ps_.size(); ++s) {
    if (IsHere(s)) text += fmt::format("{}ps/{}", text.empty() ? "" : ", ", s);
  }
  return text;
}

// Anew each time: the arenas of before may be others by now.
Status RemoteJob::Attach() {
  here_.reset();
  shm::AttachOptions options = options_.attach;
  for (std::size_t s = 0; s < ps_.size(); ++s) {
    if (!IsHere(s)) options.elsewhere.insert(static_cast<int>(s));
  }
  if (options.elsewhere.size() == ps_.size()) return {};
  PASSEL_ASSIGN_OR_RETURN(here_, shm::AttachedJob::Connect(options, task_.token));
  if (!about_data_.empty()) PASSEL_RETURN_IF_ERROR(here_->TellData(about_data_));
  return here_->WaitForArenas();
}

// A worker may ask anything twice, so a cable that is pulled for a moment costs it time alone.
Result<Errand> RemoteJob::Ask(int shard, const Json& question, std::string_view bytes,
                              Deadline deadline, std::size_t most) {
  const bool again = options_.role == Role::kWorker;
  Patience patience(deadline.Sooner(options_.ps_wait));
  Result<Errand> answer = AskOnce(shard, question, bytes, deadline, most);
  while (again && IsMissing(answer.status().code()) && !Stopped() && patience.Again(kLookPause)) {
    answer = AskOnce(shard, question, bytes, deadline, most);
  }
  PASSEL_RETURN_IF_ERROR(answer.status());
  const Status said = ErrorOf(answer->json);
  if (said.ok()) return answer;
  // One that is about to end may pass on what it hears itself.
  return IsMissing(said.code()) ? said.WithContext(NameOf(shard)) : said;
}

std::string RemoteJob::NameOf(int shard) const {
  return fmt::format("ps/{} at {}", shard, ps_[static_cast<std::size_t>(shard)].address.ToString());
}

// Errors: none is the answer.
Result<Errand> RemoteJob::AskOnce(int shard, const Json& question, std::string_view bytes,
                                  Deadline deadline, std::size_t most, bool though_stopped) {
  const auto stopped = [&] { return !though_stopped && Stopped(); };
  if (stopped()) return JobStopped();
  Ps& ps = ps_[static_cast<std::size_t>(shard)];
  if (ps.errands == nullptr) {
    const std::chrono::nanoseconds limit = WaitsAreChecked() ? kCheckedConnectLimit : kConnectLimit;
    PASSEL_ASSIGN_OR_RETURN(ps.errands,
                            ps.line->MakePipe(fabric::Purpose::kErrand, deadline.Sooner(limit)));
  }
  Result<Errand> answer = Unavailable("");
  if (Status sent = SendErrand(*ps.errands, question, bytes); !sent.ok()) {
    answer = sent;
  } else {
    do {
      answer = ReceiveErrand(*ps.errands, most, deadline.Sooner(kLookForStop));
    } while (answer.status().code() == Code::kDeadlineExceeded && !stopped() &&
             !deadline.Expired() && !WaitIsOver());
  }
  if (!answer.ok() && stopped()) return JobStopped();
  if (answer.ok()) return answer;
  ps.errands.reset();
  const bool named = answer.status().message().starts_with(NameOf(shard));
  return named ? answer.status() : answer.status().WithContext(NameOf(shard));
}

Result<Errand> RemoteJob::AskLead(const Json& question) {
  const Deadline deadline =
      Deadline::After(std::max<std::chrono::nanoseconds>(kAnswerLimit, options_.ps_wait));
  for (Patience patience(deadline.Sooner(options_.ps_wait));;) {
    Result<Errand> answer = AskOnce(0, question, {}, deadline, kMostBytes);
    const Status said = answer.ok() ? ErrorOf(answer->json) : answer.status();
    if (said.ok()) return answer;
    if (!IsMissing(said.code()) || Stopped() || !patience.Again(kLookPause)) return said;
  }
}

Status RemoteJob::TellLead(const Json& question) {
  PASSEL_ASSIGN_OR_RETURN(const Errand answer,
                          AskOnce(0, question, {}, Deadline::After(kMetricsLimit), kMostBytes,
                                  /*though_stopped=*/true));
  return ErrorOf(answer.json);
}

Status RemoteJob::TellData(const std::string& json) {
  about_data_ = json;
  if (IsHere(0)) return {};
  PASSEL_ASSIGN_OR_RETURN(const Json about, ParseJson("what a worker trains on", json, 1));
  return Ask(0, {{"ask", "tell_data"}, {"about", about}}, {}, Deadline::After(kAnswerLimit))
      .status();
}

Result<std::optional<StorePlan>> RemoteJob::PlanOf(int shard) {
  PASSEL_ASSIGN_OR_RETURN(const Errand answer,
                          Ask(shard, {{"ask", "plan"}}, {}, Deadline::After(kAnswerLimit)));
  if (answer.bytes.empty()) return std::optional<StorePlan>();
  PASSEL_ASSIGN_OR_RETURN(StorePlan plan, PlanFromJson(answer.bytes));
  return std::optional(std::move(plan));
}

Status RemoteJob::AgreeOnPlan(const StorePlan& plan) {
  PASSEL_RETURN_IF_ERROR(Attach());
  if (here_) PASSEL_RETURN_IF_ERROR(here_->MapArenas(plan));
  const shm::AttachOptions& attach = options_.attach;
  Patience patience(Deadline::After(attach.start_wait), [&] {
    if (attach.on_waiting) attach.on_waiting(task_.Names().chief_name);
  });
  for (int shard = 0; shard < static_cast<int>(ps_.size()); ++shard) {
    if (IsHere(static_cast<std::size_t>(shard))) continue;
    PASSEL_ASSIGN_OR_RETURN(std::optional<StorePlan> theirs, PlanOf(shard));
    if (!theirs && task_.is_chief) {
      PASSEL_RETURN_IF_ERROR(
          Ask(shard, {{"ask", "propose"}}, ToJson(plan), patience.deadline()).status());
      continue;
    }
    while (!theirs) {
      if (!patience.Again(kLookPause)) {
        return DeadlineExceeded(fmt::format(
            "the chief, {}, has not told ps/{} its plan within {:g} s: look at its log, or raise "
            "--start_wait",
            task_.Names().chief_name, shard, ToSeconds(attach.start_wait)));
      }
      PASSEL_ASSIGN_OR_RETURN(theirs, PlanOf(shard));
    }
    if (theirs->Hash() == plan.Hash()) continue;
    return InvalidArgument(fmt::format(
        "{} was started with other settings than the chief, {}: {}; give all workers the same",
        task_.Names()(task_.Trainer()), task_.Names().chief_name, FirstDifference(plan, *theirs)));
  }
  return {};
}

Status RemoteJob::TellTarget(std::int64_t steps) {
  if (IsHere(0)) {
    TellOfJob(steps, *here_->arena(0).memory().state);
    return {};
  }
  return AskOfArena(0, {{"ask", "begin"}, {"steps", steps}}).status();
}

// Numbers as text: JSON has neither NaN nor infinity.
Status RemoteJob::TellMetrics(const std::vector<Metric>& metrics) {
  if (IsHere(0)) {
    MetricSlots& own = here_->arena(0).memory().tasks[task_.Trainer()].metrics;
    for (const Metric& m : metrics) PASSEL_RETURN_IF_ERROR(SetMetric(own, m.name, m.value));
    return {};
  }
  Json values = Json::MakeObject();
  for (const Metric& m : metrics) values[m.name] = fmt::format("{}", m.value);
  return Ask(0, {{"ask", "metrics"}, {"values", values}}, {}, Deadline::After(kMetricsLimit))
      .status();
}

// It serves a new arena after a moment.
Result<Errand> RemoteJob::AskOfArena(int shard, const Json& question) {
  for (Patience patience(Deadline::After(kAnswerLimit));;) {
    Result<Errand> answer = Ask(shard, question, {}, Deadline::After(kAnswerLimit));
    if (answer.status().code() != Code::kUnavailable || !patience.Again(kLookPause)) return answer;
  }
}

Status RemoteJob::CheckOneBeginning() {
  if (ps_.size() == 1) return {};
  return passel::CheckOneBeginning([this]() -> Result<std::vector<ShardBeginning>> {
    steps_left_ = 0;
    std::vector<ShardBeginning> seen(ps_.size());
    for (std::size_t s = ps_.size(); s-- > 0;) {
      PASSEL_ASSIGN_OR_RETURN(seen[s], BeginningOf(static_cast<int>(s)));
      if (!seen[s].initialized) continue;
      steps_left_ =
          std::max({steps_left_, seen[s].global_step, static_cast<std::int64_t>(seen[s].version)});
    }
    return seen;
  });
}

Result<ShardBeginning> RemoteJob::BeginningOf(int shard) {
  if (IsHere(static_cast<std::size_t>(shard))) return LookAtShard(here_->arena(shard).memory());
  PASSEL_ASSIGN_OR_RETURN(const Errand answer, AskOfArena(shard, {{"ask", "beginning"}}));
  const Json& said = answer.json;
  ShardBeginning seen;
  PASSEL_ASSIGN_OR_RETURN(seen.initialized, Field<bool>(said, "initialized"));
  PASSEL_ASSIGN_OR_RETURN(seen.cohort, Field<std::uint64_t>(said, "cohort"));
  PASSEL_ASSIGN_OR_RETURN(seen.version, Field<std::uint64_t>(said, "version"));
  PASSEL_ASSIGN_OR_RETURN(seen.global_step, Field<std::int64_t>(said, "global_step"));
  PASSEL_ASSIGN_OR_RETURN(seen.restored_step, Field<std::int64_t>(said, "restored_step"));
  return seen;
}

Status RemoteJob::Renew(const StorePlan& plan) {
  if (here_) PASSEL_RETURN_IF_ERROR(here_->Renew(plan));
  const Deadline deadline = Deadline::After(options_.attach.start_wait);
  for (int shard = 0; shard < static_cast<int>(ps_.size()); ++shard) {
    if (IsHere(static_cast<std::size_t>(shard))) continue;
    PASSEL_RETURN_IF_ERROR(Ask(shard, {{"ask", "renew"}}, ToJson(plan), deadline).status());
  }
  return {};
}

void RemoteJob::GiveUp(const std::string& why) {
  if (here_) here_->GiveUp(why);
  for (int shard = 0; shard < static_cast<int>(ps_.size()); ++shard) {
    if (IsHere(static_cast<std::size_t>(shard))) continue;
    const Status told =
        Ask(shard, {{"ask", "give_up"}, {"why", why}}, {}, Deadline::After(kGiveUpLimit)).status();
    if (!told.ok()) LogDebug("ps/{} was not told: {}", shard, told.message());
  }
}

Status RemoteJob::CheckFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return ErrnoStatus(error.value(),
                       fmt::format("cannot make the folder {} (name another, or make it)", folder));
  }
  std::random_device random;
  // A name that is deleted by the next owner of the folder, if this task is killed.
  const std::string name =
      fmt::format("{}.tmp.{}.{}", kIndexFile, random() & 0x7fffffff, random() & 0x7fffffff);
  const std::string path = InFolder(folder, name);
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.valid()) return ErrnoStatus(errno, fmt::format("cannot write to {}", folder));
  file.Reset();
  const Status seen = CheckSeen(folder, name);
  (void)::unlink(path.c_str());
  return seen;
}

Status RemoteJob::CheckSeen(const std::string& folder, const std::string& file) {
  const int saving = EachPsWritesItsPart(task_) ? static_cast<int>(ps_.size()) : 1;
  for (int shard = 0; shard < saving; ++shard) {
    const Result<Errand> answer =
        Ask(shard, {{"ask", "sees"}, {"file", file}}, {}, Deadline::After(kAnswerLimit));
    if (IsHere(static_cast<std::size_t>(shard))) {
      // It has come in by the door for this alone.
      Ps& ps = ps_[static_cast<std::size_t>(shard)];
      ps.errands.reset();
      ps.line = MakeLine(shard);
    }
    PASSEL_RETURN_IF_ERROR(answer.status());
    PASSEL_ASSIGN_OR_RETURN(const auto sees, Field<bool>(answer->json, "sees"));
    if (sees) continue;
    PASSEL_ASSIGN_OR_RETURN(const auto theirs, Field<std::string>(answer->json, "folder"));
    const std::string ps =
        fmt::format("ps/{} at {}", shard, ps_[static_cast<std::size_t>(shard)].address.ToString());
    const std::string who = task_.Names()(task_.Trainer());
    if (theirs.empty()) {
      return InvalidArgument(fmt::format(
          "{} saves checkpoints, and has no --checkpoint_dir: start it with --checkpoint_dir {}",
          ps, folder));
    }
    return InvalidArgument(
        fmt::format("{} does not see in its --checkpoint_dir {} what {} writes to {}: share one "
                    "folder between all hosts of ps and of the chief, or omit --checkpoint_dir",
                    ps, theirs, who, folder));
  }
  return {};
}

Result<std::unique_ptr<ParameterStore>> RemoteJob::Open(const StorePlan& plan, bool prefetch) {
  fabric::ClientOptions options;
  options.prefetch = prefetch;
  options.waits = options_.attach.waits;
  // A ps that comes back within it is found again, and so is one that was silent before.
  options.session.gone_limit = options_.ps_wait;
  options.answer_limit += LeaseOf(task_).lease + options_.ps_wait;
  std::vector<fabric::Connector> connectors;
  for (std::size_t s = 0; s < ps_.size(); ++s) {
    ps_[s].errands.reset();
    connectors.push_back([connect = fabric::MakeTcpConnector(ps_[s].line), stopped = stopped_](
                             Deadline deadline) -> Result<std::unique_ptr<fabric::Pipe>> {
      Result<std::unique_ptr<fabric::Pipe>> pipe = connect(deadline);
      if (pipe.ok() || !stopped->load(std::memory_order_acquire)) return pipe;
      return Cancelled("the job was stopped");
    });
    if (!IsHere(s)) continue;
    options.here.memory[static_cast<int>(s)] = here_->arena(static_cast<int>(s)).memory();
    options.here.who = SelfIdentity();
  }
  auto store =
      fabric::OpenRemoteStore(plan, task_.Trainer(), std::move(connectors), options, &count_);
  if (store.ok() && here_) here_->WatchPs();
  return store;
}

std::chrono::nanoseconds RemoteJob::PsMissingFor() const {
  const auto here = here_ ? here_->PsMissingFor() : std::chrono::nanoseconds(0);
  return count_ ? std::max(count_().gone, here) : here;
}

}  // namespace passel::job

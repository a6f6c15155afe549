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
#include "cluster/endpoint.h"
#include "cluster/json_message.h"
#include "cluster/patience.h"
#include "io/checkpoint_files.h"
#include "job/other_parts.h"
#include "job/remote_facts.h"
#include "store/open_store.h"

namespace passel::job {
namespace {

// Until it is looked again whether a ps is here, or answers there.
constexpr std::chrono::milliseconds kLookPause{100};
constexpr std::chrono::seconds kConnectLimit{5};
constexpr std::chrono::milliseconds kLookForStop{100};
// Of a ps, for what it answers at once unless it makes an arena.
constexpr std::chrono::seconds kAnswerLimit{15};

Status JobStopped() { return Cancelled("the job was stopped before this worker had joined"); }

}  // namespace

RemoteJob::RemoteJob(const Task& task, const RemoteJobOptions& options)
    : task_(task), options_(options) {}

Result<std::unique_ptr<RemoteJob>> RemoteJob::ConnectIfElsewhere(const Task& task,
                                                                 const RemoteJobOptions& options) {
  std::unique_ptr<RemoteJob> job(new RemoteJob(task, options));
  const Deadline deadline = Deadline::After(options.start_wait);
  for (int shard = 0; shard < task.spec.num_tasks("ps"); ++shard) {
    PASSEL_RETURN_IF_ERROR(job->Find(shard, deadline));
  }
  if (job->FirstElsewhere() < 0) return std::unique_ptr<RemoteJob>();
  return job;
}

Status RemoteJob::Find(int shard, Deadline deadline) {
  Ps& ps = ps_.emplace_back();
  PASSEL_ASSIGN_OR_RETURN(ps.address, task_.spec.Address({"ps", shard}));
  fabric::ControlOptions options;
  options.address = ps.address;
  options.peer_index = shard;
  options.key = DoorKeyOf(task_);
  const bool worker = options_.role == Role::kWorker;
  options.me = FactsOf(task_, options_.role, worker ? task_.Trainer() : task_.id.index);
  options.bulk = task_.network;
  options.gone = [](const Status& why) { LogWarning("{}", why.message()); };
  if (worker) {
    options.stopped = [stopped = stopped_] { stopped->store(true, std::memory_order_release); };
  }
  ps.line = std::make_shared<fabric::ControlLine>(options);
  Status last;
  Patience patience(deadline, [&] {
    if (options_.on_waiting) options_.on_waiting(fmt::format("ps/{}", shard));
    LogDebug("{}", last.message());
  });
  do {
    if (Stopped()) return JobStopped();
    if (MayListen(task_.job_id, Role::kPs, shard)) return {};
    const Status tried = ps.line->Connect(deadline.Sooner(kConnectLimit));
    // A last try that the end cuts short says less than the one before it.
    if (last.ok() || tried.code() != Code::kDeadlineExceeded) last = tried;
    // It listens on its abstract socket before it opens a port.
    if (MayListen(task_.job_id, Role::kPs, shard)) return {};
    ps.elsewhere = last.ok();
    if (last.ok()) return {};
    if (last.code() != Code::kUnavailable && last.code() != Code::kDeadlineExceeded) return last;
  } while (patience.Again(kLookPause));
  return DeadlineExceeded(fmt::format(
      "ps/{} of job {} did not start within {:g} s, neither on this host nor where the lists have "
      "it ({}): start it, or raise --start_wait",
      shard, task_.job_id, ToSeconds(options_.start_wait), last.message()));
}

int RemoteJob::FirstElsewhere() const {
  const auto first = std::ranges::find(ps_, true, &Ps::elsewhere);
  return first == ps_.end() ? -1 : static_cast<int>(first - ps_.begin());
}

std::string RemoteJob::Elsewhere() const {
  std::string text;
  for (std::size_t s = 0; s < ps_.size(); ++s) {
    if (!ps_[s].elsewhere) continue;
    text += fmt::format("{}ps/{} at {}", text.empty() ? "" : ", ", s, ps_[s].address.ToString());
  }
  return text;
}

Result<Errand> RemoteJob::Ask(int shard, Json question, std::string_view bytes, Deadline deadline,
                              std::size_t most) {
  if (Stopped()) return JobStopped();
  Ps& ps = ps_[static_cast<std::size_t>(shard)];
  if (ps.errands == nullptr) {
    PASSEL_ASSIGN_OR_RETURN(
        ps.errands, ps.line->MakePipe(fabric::Purpose::kErrand, deadline.Sooner(kConnectLimit)));
  }
  Result<Errand> answer = Unavailable("");
  if (Status sent = SendErrand(*ps.errands, std::move(question), bytes); !sent.ok()) {
    answer = sent;
  } else {
    do {
      answer = ReceiveErrand(*ps.errands, most, deadline.Sooner(kLookForStop));
    } while (answer.status().code() == Code::kDeadlineExceeded && !Stopped() &&
             !deadline.Expired());
  }
  if (!answer.ok() && Stopped()) return JobStopped();
  if (!answer.ok()) {
    ps.errands.reset();
    return answer.status().WithContext(fmt::format("ps/{} at {}", shard, ps.address.ToString()));
  }
  PASSEL_RETURN_IF_ERROR(ErrorOf(answer->json));
  return answer;
}

Status RemoteJob::TellData(const std::string& json) {
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
  Patience patience(Deadline::After(options_.start_wait), [this] {
    if (options_.on_waiting) options_.on_waiting(task_.Names().chief_name);
  });
  for (int shard = 0; shard < static_cast<int>(ps_.size()); ++shard) {
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
            task_.Names().chief_name, shard, ToSeconds(options_.start_wait)));
      }
      PASSEL_ASSIGN_OR_RETURN(theirs, PlanOf(shard));
    }
    if (theirs->Hash() == plan.Hash()) continue;
    return InvalidArgument(fmt::format(
        "{} was started with other settings than the chief: {}; give all workers the same flags",
        task_.Names()(task_.Trainer()), FirstDifference(plan, *theirs)));
  }
  return {};
}

Status RemoteJob::TellTarget(std::int64_t steps) {
  return AskOfArena(0, {{"ask", "begin"}, {"steps", steps}}).status();
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
      PASSEL_ASSIGN_OR_RETURN(const Errand answer,
                              AskOfArena(static_cast<int>(s), {{"ask", "beginning"}}));
      const Json& said = answer.json;
      PASSEL_ASSIGN_OR_RETURN(seen[s].initialized, Field<bool>(said, "initialized"));
      PASSEL_ASSIGN_OR_RETURN(seen[s].cohort, Field<std::uint64_t>(said, "cohort"));
      PASSEL_ASSIGN_OR_RETURN(seen[s].version, Field<std::uint64_t>(said, "version"));
      PASSEL_ASSIGN_OR_RETURN(seen[s].global_step, Field<std::int64_t>(said, "global_step"));
      if (!seen[s].initialized) continue;
      steps_left_ =
          std::max({steps_left_, seen[s].global_step, static_cast<std::int64_t>(seen[s].version)});
    }
    return seen;
  });
}

Status RemoteJob::Renew(const StorePlan& plan) {
  const Deadline deadline = Deadline::After(options_.start_wait);
  for (int shard = 0; shard < static_cast<int>(ps_.size()); ++shard) {
    PASSEL_RETURN_IF_ERROR(Ask(shard, {{"ask", "renew"}}, ToJson(plan), deadline).status());
  }
  return {};
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
    PASSEL_ASSIGN_OR_RETURN(const Errand answer, Ask(shard, {{"ask", "sees"}, {"file", file}}, {},
                                                     Deadline::After(kAnswerLimit)));
    PASSEL_ASSIGN_OR_RETURN(const auto sees, Field<bool>(answer.json, "sees"));
    if (sees) continue;
    PASSEL_ASSIGN_OR_RETURN(const auto theirs, Field<std::string>(answer.json, "folder"));
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

Result<std::unique_ptr<ParameterStore>> RemoteJob::Open(const StorePlan& plan) {
  fabric::ClientOptions options;
  options.waits = options_.waits;
  // A ps that comes back within it is found again.
  options.session.gone_limit = options_.ps_wait;
  std::vector<fabric::Connector> connectors;
  for (Ps& ps : ps_) {
    ps.errands.reset();
    connectors.push_back([connect = fabric::MakeTcpConnector(ps.line), stopped = stopped_](
                             Deadline deadline) -> Result<std::unique_ptr<fabric::Pipe>> {
      Result<std::unique_ptr<fabric::Pipe>> pipe = connect(deadline);
      if (pipe.ok() || !stopped->load(std::memory_order_acquire)) return pipe;
      return Cancelled("the job was stopped");
    });
  }
  return fabric::OpenRemoteStore(plan, task_.Trainer(), std::move(connectors), options, &count_);
}

std::chrono::nanoseconds RemoteJob::PsMissingFor() const {
  return count_ ? count_().gone : std::chrono::nanoseconds(0);
}

}  // namespace passel::job

#include "job/task.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "cluster/patience.h"
#include "job/exit_code.h"
#include "job/join_place.h"
#include "job/remote_facts.h"
#include "job/settings_table.h"
#include "store/membership.h"
#include "train/server_lines.h"

namespace passel::job {
namespace {

// What a pipe takes as a whole.
constexpr std::size_t kMaxErrorBytes = 4000;
// One for each worker of a ps, or each ps of a worker.
constexpr int kFabricPorts = 256;
constexpr std::chrono::milliseconds kLookForToken{200};

// $XDG_RUNTIME_DIR/passel, or /tmp/passel-<uid>, of mode 0700 and ours.
Result<std::string> RuntimeDirectory() {
  const char* base = std::getenv("XDG_RUNTIME_DIR");
  const std::string dir = base != nullptr && *base != '\0'
                              ? std::string(base) + "/passel"
                              : fmt::format("/tmp/passel-{}", ::getuid());
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno,
                       fmt::format("cannot create {} for the job token; use --token_file", dir));
  }
  struct stat info;
  if (::lstat(dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::getuid() ||
      (info.st_mode & 077) != 0) {
    return PermissionDenied(fmt::format(
        "{} is not a directory of mode 0700 of this user: remove it, or use --token_file", dir));
  }
  return dir;
}

}  // namespace

bool Task::HasSeparateChief() const {
  return spec.num_tasks("chief") + spec.num_tasks("master") > 0;
}

int Task::NumTrainers() const { return spec.num_tasks("worker") + (HasSeparateChief() ? 1 : 0); }

int Task::MostTrainers() const { return flags.max_workers.value_or(NumTrainers()); }

int Task::Trainer() const { return HasSeparateChief() && is_chief ? Names().chief : id.index; }

WorkerNames Task::Names() const {
  if (!HasSeparateChief()) return {};
  return {spec.num_tasks("worker"), spec.num_tasks("chief") > 0 ? "chief/0" : "master/0"};
}

namespace {

// Errors: kInvalidArgument.
Status CheckTrainers(const Task& task) {
  const int listed = task.NumTrainers();
  const int most = task.MostTrainers();
  if (task.spec.num_tasks("ps") > kMaxShards || listed > kMaxWorkers) {
    return InvalidArgument(fmt::format(
        "a job has at most {} ps and {} workers (a chief counts as one), not {} and {}: use fewer",
        kMaxShards, kMaxWorkers, task.spec.num_tasks("ps"), listed));
  }
  if (most < listed || most > kMaxWorkers) {
    return InvalidArgument(fmt::format(
        "--max_workers is {} to {} here, not {}: the lists name {}, and a job has at most {}; "
        "raise it, or omit it",
        listed, kMaxWorkers, most, listed, kMaxWorkers));
  }
  if (most > listed && task.HasSeparateChief()) {
    return InvalidArgument(
        "nobody joins a job whose chief is a task of its own: omit --max_workers, or let worker 0 "
        "be the chief");
  }
  if (task.id.job == "worker" && task.id.index >= most) {
    return InvalidArgument(fmt::format(
        "--task_index of a worker is 0 to {} here, not {}: the lists name {} workers, and "
        "--max_workers is {}; give all tasks a larger one",
        most - 1, task.id.index, listed, most));
  }
  return {};
}

// Of several hosts that of ps/0 makes it. On a folder that they share, or while somebody copies it,
// it comes a moment later.
Result<JobToken> NamedToken(const Task& task) {
  const std::string& path = task.flags.token_file;
  const TaskId lead{"ps", 0};
  PASSEL_ASSIGN_OR_RETURN(const HostPort address, task.spec.Address(lead));
  if (!task.several_hosts || task.id == lead || IsLocalHost(address.host)) {
    return JobToken::ReadOrCreate(path);
  }
  Result<JobToken> token = JobToken::Read(path);
  if (token.status().code() != Code::kNotFound) return token;
  const std::string missing = fmt::format("there is no token file {} on this host", path);
  const std::string fix = fmt::format(
      "start ps/0 on {1}, which makes it, and put it in a folder that the hosts share, or copy it "
      "here: scp -p {1}:{0} {0}",
      path, address.host);
  LogWarning("{}: waiting for it; {}", missing, fix);
  Patience patience(Deadline::After(std::chrono::nanoseconds(
                        static_cast<std::int64_t>(1e9 * task.job.start_wait))),
                    [&path] { LogInfo("Waiting for the token file {}", path); });
  while (token.status().code() == Code::kNotFound) {
    if (!patience.Again(kLookForToken)) {
      return DeadlineExceeded(
          fmt::format("{}, and none came within {:g} s: {}", missing, task.job.start_wait, fix));
    }
    token = JobToken::Read(path);
  }
  if (token.ok()) return token;
  // It may have been seen half copied.
  std::this_thread::sleep_for(kLookForToken);
  return JobToken::Read(path);
}

// Before anything is waited for, and before most threads.
Status OpenNetwork(Task* task) {
  const TaskSettings& flags = task->flags;
  if (flags.fabric_provider.empty()) {
    if (flags.fabric_iface.empty() && flags.fabric_port == 0) return {};
    return InvalidArgument(
        fmt::format("--{} is for --fabric_provider: name a provider, or omit it",
                    flags.fabric_iface.empty() ? "fabric_port" : "fabric_iface"));
  }
  if (!task->several_hosts) {
    LogWarning(
        "--fabric_provider {} has no use here: the lists name this host alone, where parameters "
        "are in shared memory",
        flags.fabric_provider);
  }
  fabric::BulkOptions options;
  options.provider = flags.fabric_provider;
  options.interface = flags.fabric_iface;
  options.port = static_cast<std::uint16_t>(flags.fabric_port);
  options.ports = kFabricPorts;
  options.spin = WorkerSpin(*task);
  options.stall_limit = LeaseOf(*task).stall_limit();
  PASSEL_ASSIGN_OR_RETURN(task->network, fabric::LoadBulkNetwork(options));
  return {};
}

// That of --token_file, or one that the tasks of this host make.
Status TakeToken(Task* task) {
  if (!task->flags.token_file.empty()) {
    if (task->flags.insecure_no_auth) {
      return InvalidArgument(
          "--insecure_no_auth is for a job without a token, and --token_file names one: omit one "
          "of them");
    }
    PASSEL_ASSIGN_OR_RETURN(task->token, NamedToken(*task));
    return {};
  }
  if (task->several_hosts && !task->flags.insecure_no_auth) {
    return InvalidArgument(
        "the lists name several hosts, whose tasks share a secret: give each --token_file FILE "
        "(ps/0 "
        "makes it, scp -p brings it to the other hosts), or, in a network where everybody may read "
        "and write the parameters, --insecure_no_auth");
  }
  PASSEL_ASSIGN_OR_RETURN(const std::string dir, RuntimeDirectory());
  RemoveStaleTokenFiles(dir);
  PASSEL_ASSIGN_OR_RETURN(
      task->token_file, TokenFile::Join(fmt::format("{}/{}{}", dir, task->job_id, kTokenFileEnding),
                                        Deadline::After(std::chrono::seconds(5))));
  task->token = task->token_file.token();
  return {};
}

}  // namespace

bool NamesOtherHosts(const ClusterSpec& spec) {
  for (const auto& [job, tasks] : spec.jobs()) {
    for (const auto& [index, address] : tasks) {
      if (!IsLocalHost(address.host)) return true;
    }
  }
  return false;
}

Status PrepareTask(const ResolvedConfig& config, Task* task) {
  PASSEL_RETURN_IF_ERROR(config.CheckComplete());
  PASSEL_RETURN_IF_ERROR(
      CheckRanges({nullptr, nullptr, nullptr, nullptr, &task->flags}, task->job.typed));
  task->spec = config.cluster;
  // Nobody has asked this for an evaluator yet.
  PASSEL_RETURN_IF_ERROR(task->spec.Validate());
  PASSEL_CHECK(config.task.has_value(), "a cluster was named, so a task of it was too");
  task->id = *config.task;
  task->is_chief = config.is_chief;
  task->worker_device = config.worker_device;
  task->gpu = config.gpu;
  task->several_hosts = NamesOtherHosts(task->spec);
  task->job_id = task->flags.job_id.empty() ? JobIdFromSpec(task->spec) : task->flags.job_id;
  PASSEL_RETURN_IF_ERROR(ValidateJobId(task->job_id));
  if (task->flags.join) {
    // The job is asked which places it has.
    PASSEL_RETURN_IF_ERROR(TakeToken(task));
    PASSEL_RETURN_IF_ERROR(TakeFreePlace(task));
  }
  PASSEL_RETURN_IF_ERROR(CheckTrainers(*task));
  PASSEL_RETURN_IF_ERROR(OpenNetwork(task));
  return task->flags.join ? Status() : TakeToken(task);
}

void LogServer(const Task& task, const JobConfig& config) {
  if (task.flags.supervised || !TellsOfServers(config.log_style)) return;
  for (const std::string& line : ChannelLines(task.spec)) LogInfo("{}", line);
  if (const auto address = task.spec.Address(task.id); address.ok()) {
    LogInfo("{}", StartedServerLine(address->ToString()));
  }
}

void LogSession(const Task& task, const JobConfig& config) {
  if (task.flags.supervised || !TellsOfServers(config.log_style)) return;
  const DeviceSettings& devices = task.flags.devices;
  SessionConfig session;
  session.device_filters = devices.device_filters;
  session.per_process_gpu_memory_fraction = devices.per_process_gpu_memory_fraction;
  session.allow_soft_placement = devices.allow_soft_placement;
  session.log_device_placement = devices.log_device_placement;
  std::random_device random;
  const std::uint64_t high = random();
  LogInfo("{}", MasterSessionLine(high << 32 | random(), session));
}

std::function<void(const std::string& task)> TellsOfWaiting(const JobConfig& config) {
  return [style = config.log_style](const std::string& task) {
    LogInfo("{}", WaitingLine(style, task));
  };
}

int FailTask(const Status& status, int error_fd) {
  const std::string text = status.message().substr(0, kMaxErrorBytes);
  if (error_fd < 0 || ::write(error_fd, text.data(), text.size()) < 0) LogError("{}", text);
  return ExitCodeFor(status);
}

void RemoveToken(Task& task) {
  if (task.id.index == 0) task.token_file.Remove();
}

}  // namespace passel::job

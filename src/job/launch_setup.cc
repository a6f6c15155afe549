#include "job/launch_setup.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/subprocess.h"
#include "cluster/arena_device.h"
#include "cluster/device.h"
#include "cluster/gpu_choice.h"
#include "cluster/topology_json.h"
#include "compute/accelerator_loader.h"
#include "job/devices.h"
#include "job/flag_checks.h"
#include "job/gpu_compute.h"
#include "job/probe_child.h"
#include "store/shard_memory.h"
#include "train/update_line.h"

namespace passel::job {
namespace {

using Kind = DeviceRequest::Kind;

class Setup {
 public:
  Setup(const TrainSettings& flags, const JobConfig& config)
      : flags_(flags), f_(flags.launch), d_(flags.devices), config_(config) {}

  Result<LaunchSetup> Run() {
    PASSEL_ASSIGN_OR_RETURN(device_, ParseDeviceRequest(d_.device));
    PASSEL_RETURN_IF_ERROR(CheckFlags());
    request_.ps = flags_.ps;
    out_.workers = flags_.workers;
    request_.workers = flags_.MaxWorkers();
    request_.evaluator = flags_.evaluator;
    request_.threads_per_worker = config_.towers;
    request_.memory_fraction = d_.per_process_gpu_memory_fraction;
    out_.may_fall_back = f_.gpus.empty() && device_.kind == Kind::kAuto;
    PASSEL_RETURN_IF_ERROR(ChooseProcessor());
    PASSEL_RETURN_IF_ERROR(CheckArena());
    // --device auto finds out in the worker whether the GPU can be used.
    if (!request_.devices.empty() && !out_.may_fall_back && !flags_.of_program) {
      PASSEL_RETURN_IF_ERROR(CheckForGpu(config_, "worker/0"));
    }
    if (request_.devices.empty()) WarnOfCpu();
    if (flags_.ps == 0) return std::move(out_);  // this process does it all, where it is
    PASSEL_RETURN_IF_ERROR(ReadMachine());
    PASSEL_ASSIGN_OR_RETURN(out_.plan, PlanLaunch(out_.topology, request_));
    if (!request_.devices.empty() && !flags_.of_program) DescribeUpdates();
    return std::move(out_);
  }

 private:
  Status CheckFlags() {
    const std::optional<Binding> binding = ParseBinding(f_.bind);
    if (!binding) {
      return InvalidArgument(fmt::format(
          "--bind {} is not known: use one of auto, none, numa, core (--pin is the same flag)",
          f_.bind));
    }
    request_.binding = *binding;
    if (!f_.topology.empty() && !f_.dry_run) {
      return InvalidArgument(fmt::format(
          "--topology {} describes a machine that need not be this one: add --dry_run, or omit it",
          f_.topology));
    }
    if (f_.dry_run && flags_.ps == 0) {
      return InvalidArgument(
          "--dry_run shows where tasks would run, and --ps 0 starts none: use --ps 1");
    }
    if (f_.workers_per_gpu && f_.gpus.empty()) {
      return InvalidArgument("--workers_per_gpu needs --gpus, which says on which: add --gpus all");
    }
    if (f_.gpus.empty()) return {};
    if (flags_.ps == 0) {
      return InvalidArgument(
          "--gpus starts a worker process for each GPU, and --ps 0 none: use --ps 1, or --device "
          "cuda:UUID");
    }
    if (d_.num_gpus_given) {
      return InvalidArgument(
          fmt::format("--gpus {} names the GPUs, and --num_gpus {} counts them: omit --num_gpus",
                      f_.gpus, d_.num_gpus));
    }
    if (device_.kind == Kind::kCpu || !device_.uuid.empty()) {
      return InvalidArgument(
          fmt::format("--gpus {} and --device {} name different devices: omit one of them", f_.gpus,
                      d_.device));
    }
    return {};
  }

  // --arena device: the parameters are in the memory of one GPU, which processes share.
  Status CheckArena() {
    if (!config_.on_device) return {};
    if (flags_.ps == 0) {
      return InvalidArgument(
          "--arena device is shared by workers, and --ps 0 has none: use --ps 1 --workers 1, or "
          "--arena host");
    }
    if (request_.devices.empty()) {
      return InvalidArgument(fmt::format(
          "--arena device keeps the parameters in the memory of a GPU, and the workers would "
          "compute on the CPU{}: use --arena host, or workers on a GPU",
          reason_.empty() ? "" : " (" + reason_ + ")"));
    }
    // What no worker computes on need not be reached.
    const std::size_t used = UsedDevices().size();
    request_.devices.resize(used);
    out_.num_gpus = static_cast<int>(used);
    request_.arena_on_device = true;
    request_.without_mps = LocksSharedGpu(config_, request_.workers, static_cast<int>(used));
    PASSEL_RETURN_IF_ERROR(CheckArenaDevices(out_.topology, request_.devices, request_.workers));
    if (out_.topology.mps != MpsState::kRunning) return {};  // else a worker finds out
    const int gpus = static_cast<int>(used);
    PASSEL_RETURN_IF_ERROR(CheckLockedUnderMps(config_, request_.workers, gpus));
    if (request_.workers > gpus && NumSlots(config_.optimizer) > 0) {
      out_.warnings.push_back(fmt::format(
          "MPS is running, so blocks of the parameters that a worker holds when it is killed are "
          "updated by nobody from then on (--optimizer {} has to hold them): use --arena host if "
          "workers may be killed",
          OptimizerName(config_.optimizer.kind)));
    }
    return {};
  }

  // Those that a worker computes on.
  std::span<const ComputeDevice> UsedDevices() const {
    return std::span(request_.devices)
        .first(std::min(request_.devices.size(), static_cast<std::size_t>(request_.workers)));
  }

  // Why --arena device would be refused here, in a few words, or may be by a worker that sees MPS.
  std::string WhyNoArenaOnDevice() const {
    const std::string obstacle = ArenaObstacle(out_.topology, UsedDevices());
    if (!obstacle.empty() || out_.topology.mps == MpsState::kStopped) return obstacle;
    const int gpus = static_cast<int>(UsedDevices().size());
    if (!LocksSharedGpu(config_, request_.workers, gpus)) return "";
    return out_.topology.mps == MpsState::kRunning
               ? "under MPS workers in locked cannot share a GPU"
               : "under MPS, which may run, workers in locked cannot share a GPU";
  }

  void DescribeUpdates() {
    UpdateFacts facts;
    facts.workers = request_.workers;
    facts.batch_size = config_.worker.batch_size;
    facts.push_every = config_.worker.push_every;
    facts.mode = config_.mode;
    facts.schedule = config_.mode_schedule;
    facts.on_device = config_.on_device;
    facts.gpu = request_.devices.front().Index();
    facts.obstacle = WhyNoArenaOnDevice();
    out_.updates = UpdateLine(facts);
  }

  // --num_gpus 0, by the user or by a preset.
  bool CpuAskedFor() const {
    return d_.num_gpus == 0 && (d_.num_gpus_given || !d_.num_gpus_origin.empty());
  }

  // What is asked for and not had: once for all workers.
  void WarnOfCpu() {
    const int gpus = std::min(d_.num_gpus, request_.workers);
    const std::string on = gpus == 0   ? ""
                           : gpus == 1 ? "gpu:0"
                                       : fmt::format("gpu:0 to gpu:{}", gpus - 1);
    const char* const who = request_.workers == 1 ? "worker/0 computes" : "all workers compute";
    for (std::string& warning : DeviceWarnings(d_, who, on, reason_)) {
      out_.warnings.push_back(std::move(warning));
    }
  }

  // The workers compute on the CPU, and that is why.
  Status UseCpu(std::string reason) {
    reason_ = std::move(reason);
    if (d_.num_gpus > 0) return CheckSoftPlacement(d_, "worker/0", 0, reason_);
    if (device_.kind == Kind::kAuto && !CpuAskedFor()) {
      out_.cpu_reason = "computing on the CPU: " + reason_;
    }
    return {};
  }

  bool Recorded() const { return !f_.topology.empty(); }

  // Once. Recorded, or of this machine.
  Status ReadMachine() {
    if (have_topology_) return {};
    have_topology_ = true;
    if (Recorded()) {
      Result<Topology> recorded = ReadTopology(f_.topology);
      if (!recorded.ok()) return recorded.status().WithContext("--topology");
      out_.topology = std::move(recorded).value();
    } else if (request_.binding == Binding::kNuma || !request_.devices.empty() || wants_gpus_) {
      PASSEL_ASSIGN_OR_RETURN(out_.topology, ProbeInChild(Deadline::After(kProbeLimit)));
    } else {
      out_.topology = FlatTopology(UsableCpus());
    }
    return {};
  }

  Status ChooseProcessor() {
    if (flags_.ps == 0) return CheckAlone();
    if (!f_.gpus.empty() || device_.kind == Kind::kCuda) {
      wants_gpus_ = true;
      PASSEL_RETURN_IF_ERROR(ReadMachine());
      // Where there is no GPU the choice says why: the GPU code would be of no use.
      if (!out_.topology.gpus.empty() && !flags_.of_program) PASSEL_RETURN_IF_ERROR(CheckPlugin());
      return f_.gpus.empty() ? ChooseShared() : ChooseNamed();
    }
    if (device_.kind == Kind::kCpu) return UseCpu("--device cpu says so");
    if (CpuAskedFor()) return {};
    return ChooseAutomatically();
  }

  // One process without a ps.
  Status CheckAlone() {
    if (device_.kind != Kind::kCuda) {
      return UseCpu(device_.kind == Kind::kCpu ? "--device cpu says so"
                                               : "one process alone has no GPU code");
    }
    return FailedPrecondition(
        fmt::format("--device {} needs a ps, since one process alone computes on the CPU: use --ps "
                    "1 --workers 1, or --device cpu",
                    d_.device));
  }

  // A recorded machine may have what this one lacks.
  Status CheckPlugin() {
    if (Recorded()) return {};
    const Result<std::string> plugin = FindAcceleratorPlugin();
    if (plugin.ok()) return {};
    if (f_.dry_run) {
      out_.warnings.push_back(
          fmt::format("without --dry_run this would fail, since {}", plugin.status().message()));
      return {};
    }
    return FailedPrecondition(
        fmt::format("{} cannot be: {}; or use --device cpu instead",
                    f_.gpus.empty() ? "--device " + d_.device : "--gpus " + f_.gpus,
                    plugin.status().message()));
  }

  Status Take(DeviceChoice choice) {
    request_.devices = std::move(choice.devices);
    out_.num_gpus = static_cast<int>(request_.devices.size());
    // On one GPU they take turns, which is slower than one alone: only for who asks for it.
    if (f_.gpus.empty() && !flags_.workers_given && !flags_.max_workers) {
      out_.workers = request_.workers = std::min(request_.workers, out_.num_gpus);
    }
    for (std::string& warning : choice.warnings) out_.warnings.push_back(std::move(warning));
    if (out_.topology.without_nvml) out_.warnings.emplace_back(kWithoutNvml);
    return {};
  }

  // --gpus: the number of workers follows.
  Status ChooseNamed() {
    PASSEL_ASSIGN_OR_RETURN(DeviceChoice choice, ChooseDevices(out_.topology, f_.gpus,
                                                               CudaEnvironment::OfThisProcess()));
    const auto gpus = static_cast<std::int64_t>(choice.devices.size());
    const std::int64_t wanted = gpus * f_.workers_per_gpu.value_or(1);
    const char* const typed = flags_.roles.empty() ? "--workers " : "worker=";
    if (flags_.workers_given && f_.workers_per_gpu && flags_.workers != wanted) {
      return InvalidArgument(fmt::format(
          "{} GPUs with --workers_per_gpu {} make {} workers, not {}{}: omit one of the two", gpus,
          *f_.workers_per_gpu, wanted, typed, flags_.workers));
    }
    if (flags_.workers_given && flags_.workers < gpus) {
      return InvalidArgument(
          fmt::format("--gpus {} names {} GPUs, and {}{} would leave {} of them idle: omit {}, "
                      "or name fewer GPUs",
                      f_.gpus, gpus, typed, flags_.workers, gpus - flags_.workers,
                      flags_.roles.empty() ? "--workers" : "worker="));
    }
    const std::int64_t workers = flags_.workers_given ? flags_.workers : wanted;
    if (workers > kMaxWorkers) {
      return InvalidArgument(
          fmt::format("a job has up to {} workers, and {} GPUs with "
                      "--workers_per_gpu {} make {}: use fewer",
                      kMaxWorkers, gpus, f_.workers_per_gpu.value_or(1), workers));
    }
    TrainSettings all = flags_;
    all.workers = out_.workers = static_cast<int>(workers);
    PASSEL_RETURN_IF_ERROR(CheckMaxWorkers(all, config_));
    request_.workers = all.MaxWorkers();
    if (flags_.gpu_per_worker) {
      PASSEL_RETURN_IF_ERROR(CheckGpuPerWorker(static_cast<int>(gpus), request_.workers));
    }
    return Take(std::move(choice));
  }

  // --device cuda: the workers share what there is.
  Status ChooseShared() {
    PASSEL_ASSIGN_OR_RETURN(
        DeviceChoice choice,
        ChooseDevices(out_.topology, device_.uuid.empty() ? "all" : device_.uuid,
                      CudaEnvironment::OfThisProcess(),
                      device_.uuid.empty() ? "--device cuda" : "--device"));
    if (flags_.gpu_per_worker) {
      PASSEL_RETURN_IF_ERROR(
          CheckGpuPerWorker(static_cast<int>(choice.devices.size()), request_.workers));
    }
    PASSEL_RETURN_IF_ERROR(LimitNumber(&choice));
    return Take(std::move(choice));
  }

  // --num_gpus N beside --device: the first N of those that there are.
  Status LimitNumber(DeviceChoice* choice) {
    const auto wanted = static_cast<std::size_t>(d_.num_gpus);
    const std::size_t there = choice->devices.size();
    if (wanted == 0) return {};
    if (wanted < there) choice->devices.resize(wanted);
    if (wanted <= there) return {};
    const std::string found = fmt::format("{} of --num_gpus {} can be used on {}", there,
                                          d_.num_gpus, out_.topology.origin);
    if (!d_.allow_soft_placement) {
      return InvalidArgument(
          fmt::format("only {}: use --num_gpus {}, or --allow_soft_placement", found, there));
    }
    choice->warnings.push_back(fmt::format("only {}: workers share them", found));
    return {};
  }

  // --device auto: as --device cuda, but whatever is in the way is a reason for the CPU.
  Status ChooseAutomatically() {
    wants_gpus_ = true;
    Status problem = ReadMachine();
    if (Recorded() && !problem.ok()) return problem;  // a file that the user named
    if (!problem.ok()) {
      have_topology_ = wants_gpus_ = false;
    } else if (out_.topology.gpus.empty()) {
      problem = NotFound(out_.topology.no_gpu_reason);
    } else {
      if (!Recorded()) problem = FindAcceleratorPlugin().status();
      if (problem.ok()) {
        Result<DeviceChoice> choice = ChooseDevices(
            out_.topology, "all", CudaEnvironment::OfThisProcess(), "--device auto, looking for");
        if (choice.ok()) {
          PASSEL_RETURN_IF_ERROR(LimitNumber(&*choice));
          return Take(std::move(*choice));
        }
        problem = choice.status();
      }
    }
    return UseCpu(problem.message());
  }

  const TrainSettings& flags_;
  const LaunchSettings& f_;
  const DeviceSettings& d_;
  const JobConfig& config_;
  DeviceRequest device_;
  LaunchRequest request_;
  LaunchSetup out_;
  std::string reason_;  // why the workers compute on the CPU
  bool have_topology_ = false;
  bool wants_gpus_ = false;
};

}  // namespace

Result<LaunchSetup> SetUpLaunch(const TrainSettings& flags, const JobConfig& config) {
  return Setup(flags, config).Run();
}

std::string DescribeSetup(const LaunchSetup& setup) {
  std::string text = DescribePlan(setup.plan);
  for (const TaskPlan& task : setup.plan.tasks) {
    if (!task.device) continue;
    text += fmt::format("{}: {}\n", task.Name(), TopologyLine(setup.topology, setup.plan, task));
  }
  for (const std::string* line : {&setup.updates, &setup.cpu_reason}) {
    if (!line->empty()) text += *line + "\n";
  }
  for (const auto* warnings : {&setup.warnings, &setup.plan.warnings}) {
    for (const std::string& warning : *warnings) text += "warning: " + warning + "\n";
  }
  return text;
}

void LogSetup(const LaunchSetup& setup) {
  for (const auto* warnings : {&setup.warnings, &setup.plan.warnings}) {
    for (const std::string& warning : *warnings) LogWarning("{}", warning);
  }
  for (const std::string* line : {&setup.updates, &setup.cpu_reason}) {
    if (!line->empty()) LogInfo("{}", *line);
  }
  for (const TaskPlan& task : setup.plan.tasks) {
    if (!task.device) continue;
    LogInfo("{}: {}", task.Name(), TopologyLine(setup.topology, setup.plan, task));
  }
}

}  // namespace passel::job

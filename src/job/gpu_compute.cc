#include "job/gpu_compute.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "base/log.h"
#include "cluster/gpu_choice.h"
#include "compute/accelerator_loader.h"
#include "job/devices.h"

namespace passel::job {
namespace {

using Kind = DeviceRequest::Kind;

// The name of GPU `index` of those that this process may see; "" where there are fewer.
std::string VisibleName(int index) {
  const char* const visible = ::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return std::to_string(index);
  const std::string list = visible;
  std::size_t begin = 0;
  for (int i = 0; i < index && begin != std::string::npos; ++i) {
    begin = list.find(',', begin);
    if (begin != std::string::npos) ++begin;
  }
  return begin == std::string::npos ? "" : list.substr(begin, list.find(',', begin) - begin);
}

// The GPU `index` of those that this process may see becomes the first, and `arena`, in whose
// memory the parameters are, the only other one: before CUDA wakes up.
void SeeOnly(int index, int arena) {
  // Where there are fewer GPUs than --num_gpus says, none is left: the driver will tell.
  std::string devices = VisibleName(index);
  if (arena != index && !devices.empty()) {
    devices = fmt::format("{},{}", devices, VisibleName(arena));
  }
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
  ::setenv("CUDA_VISIBLE_DEVICES", devices.c_str(), 1);
}

bool CpuAskedFor(const Task& task, const DeviceRequest& request) {
  const DeviceSettings& f = task.flags.devices;
  if (request.kind != Kind::kAuto) return request.kind == Kind::kCpu;
  // A supervisor has looked at --num_gpus itself.
  return !task.flags.supervised && f.num_gpus == 0 &&
         (f.num_gpus_given || !f.num_gpus_origin.empty());
}

Status NeedsGpu(const std::string& task) {
  return InvalidArgument(fmt::format(
      "--arena device keeps the parameters in the memory of a GPU, and {} is to compute "
      "on the CPU: use --arena host, or omit --device cpu and --num_gpus 0",
      task));
}

constexpr std::chrono::milliseconds kFirstPause{50};
constexpr std::chrono::milliseconds kLongestPause{2000};
// For a GPU that need not be: with --device auto, in a worker's first life.
constexpr std::chrono::seconds kPatienceOfAuto{10};

// Asks `attempt` until it succeeds, or fails for a reason that does not go away by itself. Errors:
// its own; kUnavailable once the time is over. A signal ends the worker meanwhile.
template <typename Attempt>
auto UntilReady(Deadline deadline, bool (*goes_away)(Code), const Attempt& attempt) {
  std::chrono::milliseconds pause = kFirstPause;
  bool told = false;
  for (;;) {
    auto result = attempt();
    if (result.ok() || !goes_away(result.status().code())) return result;
    if (deadline.Expired()) {
      return decltype(result)(Unavailable(result.status().message()));
    }
    if (!told) {
      told = true;
      LogWarning("waiting up to {:.1f} s for the GPU: {}",
                 1e-9 * static_cast<double>(deadline.Remaining().count()),
                 result.status().message());
    }
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline.Remaining()));
    pause = std::min(2 * pause, kLongestPause);
  }
}

bool NotReady(Code code) { return code == Code::kUnavailable; }
// In a later life the memory of the one before may still be given back.
bool NoMemoryYet(Code code) { return code == Code::kResourceExhausted; }
bool NotReadyAgain(Code code) { return NotReady(code) || NoMemoryYet(code); }

NetworkShape ShapeOf(const ModelConfig& model) {
  NetworkShape shape;
  const std::vector<VariableSpec> variables = ModelVariables(model);
  for (std::size_t v = 0; v < variables.size(); v += 2) {
    shape.layers.push_back({variables[v].rows(), variables[v].cols()});
  }
  shape.clip = model.clip;
  shape.mean = model.loss == LossReduction::kMean;
  return shape;
}

}  // namespace

void WarnOfGpuSettings(const JobConfig& config) {
  std::vector<std::string_view> names;
  if (config.steps_ahead > 0) names.push_back("--overlap");
  if (config.math != MathMode::kFloat32) names.push_back("--math");
  if (!config.cuda_graphs) names.push_back("--nocuda_graphs");
  if (!config.fused_update) names.push_back("--nofused_update");
  if (names.empty()) return;
  LogWarning("{} {} no effect on the CPU", fmt::join(names, ", "),
             names.size() == 1 ? "has" : "have");
}

Status CheckForGpu(const JobConfig& config, std::string_view worker) {
  if (config.towers > 1) {
    return InvalidArgument(
        fmt::format("--towers {} are threads of a CPU, and {} computes on a GPU: use --towers 1, "
                    "or --device cpu",
                    config.towers, worker));
  }
  if (config.worker.push_every > 1) {
    return InvalidArgument(fmt::format(
        "--push_every {} sums gradients up on a CPU, and {} computes on a GPU: use a --batch_size "
        "{} times as large, or --device cpu",
        config.worker.push_every, worker, config.worker.push_every));
  }
  return {};
}

bool LocksSharedGpu(const JobConfig& config, int workers, int gpus) {
  const auto& schedule = config.mode_schedule;
  const bool locked = config.mode.mode == Mode::kLocked ||
                      std::any_of(schedule.begin(), schedule.end(), [](const ScheduledMode& entry) {
                        return entry.setting.mode == Mode::kLocked;
                      });
  return locked && workers > gpus;
}

Status CheckLockedUnderMps(const JobConfig& config, int workers, int gpus) {
  if (!config.on_device || !LocksSharedGpu(config, workers, gpus)) return {};
  return InvalidArgument(
      fmt::format("the mode locked with --arena device takes over what a dead worker held, and "
                  "under MPS, which is running, the kernel of the dead may still be at work: at "
                  "most 1 worker on each GPU is possible, not {} on {}; stop MPS (echo quit | "
                  "nvidia-cuda-mps-control), or use --mode hogwild, or --arena host",
                  workers, gpus));
}

Result<std::unique_ptr<GpuCompute>> GpuCompute::Open(const Task& task, const JobConfig& config,
                                                     Deadline start) {
  const DeviceSettings& f = task.flags.devices;
  PASSEL_ASSIGN_OR_RETURN(const DeviceRequest request, ParseDeviceRequest(f.device));
  Status problem;
  const bool cpu_asked_for = CpuAskedFor(task, request);
  if (cpu_asked_for && config.on_device) return NeedsGpu(task.id.ToString());
  if (!cpu_asked_for) {
    // The chief is the first of its job, and makes the arena on the first GPU.
    if (!task.flags.supervised && request.uuid.empty() && task.gpu) {
      SeeOnly(*task.gpu, config.on_device ? 0 : *task.gpu);
    }
    AcceleratorOptions options;
    options.uuid = request.uuid;
    options.memory_fraction = f.per_process_gpu_memory_fraction.value_or(1);
    const bool optional = request.kind == Kind::kAuto && !config.on_device && !task.flags.had_gpu;
    // On the CPU it still has to begin in time.
    const Deadline patience = optional ? start.Sooner(std::min<std::chrono::nanoseconds>(
                                             kPatienceOfAuto, start.Remaining() / 2))
                                       : start;
    Result<std::unique_ptr<Accelerator>> opened =
        UntilReady(patience, task.flags.restarted ? NotReadyAgain : NotReady,
                   [&options] { return OpenAccelerator(options); });
    if (opened.ok()) {
      PASSEL_RETURN_IF_ERROR(CheckForGpu(config, task.id.ToString()));
      if ((*opened)->info().mps) {
        PASSEL_RETURN_IF_ERROR(
            CheckLockedUnderMps(config, task.MostTrainers(), std::max(f.num_gpus, 1)));
      }
      return std::unique_ptr<GpuCompute>(
          new GpuCompute(std::move(*opened), task.flags.restarted, start));
    }
    problem = opened.status();
    // Where the GPU code is missing, the driver may be missing too: then a build would not help.
    if (!FindAcceleratorPlugin().ok()) problem = NotFound(WhyNoGpu());
    // The others count on its steps: its next life may find the GPU again.
    if (task.flags.had_gpu && problem.code() != Code::kInvalidArgument) {
      return Unavailable(problem.message())
          .WithContext(
              fmt::format("{} computed on a GPU before it was started again", task.id.ToString()));
    }
    if (config.on_device) return problem.WithContext("--arena device");
    if (request.kind == Kind::kCuda) return problem.WithContext("--device " + f.device);
    PASSEL_RETURN_IF_ERROR(CheckSoftPlacement(f, task.id.ToString(), task.gpu, problem.message()));
  }
  if (!task.flags.supervised) {
    const std::string gpu = task.gpu ? fmt::format("gpu:{}", *task.gpu) : "";
    const std::string reason = cpu_asked_for ? "--device cpu says so" : problem.message();
    for (const std::string& warning :
         DeviceWarnings(f, task.id.ToString() + " computes", gpu, reason)) {
      LogWarning("{}", warning);
    }
    if (!cpu_asked_for && gpu.empty()) LogInfo("computing on the CPU: {}", reason);
  } else if (!cpu_asked_for) {
    LogWarning("computing on the CPU: {}", problem.message());
  }
  WarnOfGpuSettings(config);
  return std::unique_ptr<GpuCompute>();
}

Status GpuCompute::ShareParameters(const DeviceParametersOptions& options, shm::AttachedJob& job,
                                   ParameterStore& store) {
  PASSEL_ASSIGN_OR_RETURN(parameters_, DeviceParameters::Open(options, *accelerator_, job, store));
  return {};
}

Result<EngineUse> GpuCompute::MakeEngine(const JobConfig& config, const ModelLayout& layout,
                                         const ImageSet& train, const shm::AttachedJob& job,
                                         int trainer) {
  StepEngineOptions options;
  options.network = ShapeOf(config.model);
  const VariableTable& table = layout.table();
  for (const auto& ids : layout.parts()) {
    auto& parts = options.memory.variables.emplace_back();
    for (const VarId id : ids) {
      const VariableInfo& v = table[id];
      parts.push_back({v.shard, v.offset, static_cast<std::size_t>(v.first_row),
                       static_cast<std::size_t>(v.shape[0])});
    }
  }
  const int store_slots = job.arena(0).memory().gradient_slots;
  // Modes with rounds may lend a buffer of their own; an arena on the GPU has none.
  const bool resident = parameters_ != nullptr;
  if (resident) options.arena = &parameters_->arena();
  options.memory.gradient_slots.resize(static_cast<std::size_t>(store_slots) + (resident ? 0 : 1));
  EngineUse use;
  for (int shard = 0; shard < table.shards(); ++shard) {
    const ShardMemory& memory = job.arena(shard).memory();
    options.memory.shard_values.emplace_back(memory.values, memory.floats);
    for (int slot = 0; slot < store_slots; ++slot) {
      options.memory.gradient_slots[static_cast<std::size_t>(slot)].emplace_back(
          memory.Gradient(trainer, slot), memory.floats);
    }
    if (resident) continue;
    scratch_.emplace_back(memory.floats);
    options.memory.gradient_slots.back().push_back(scratch_.back().floats());
    use.scratch.emplace_back(scratch_.back().floats());
  }
  options.train = {train.images.data(), train.labels.data(), train.size()};
  options.batch_size = config.worker.batch_size;
  options.math = config.math;
  options.graph = config.cuda_graphs;
  use.update_in_step = config.fused_update && resident && NumSlots(config.optimizer) == 0 &&
                       config.steps_ahead == 0 && config.worker.on_nan == OnNan::kStop;
  options.updates = use.update_in_step;
  const auto create = [&] { return accelerator_->CreateStepEngine(options); };
  if (restarted_) {
    PASSEL_ASSIGN_OR_RETURN(engine_, UntilReady(start_, NoMemoryYet, create));
  } else {
    PASSEL_ASSIGN_OR_RETURN(engine_, create());
  }
  LogInfo("computing on {} ({}): {}", accelerator_->info().name, accelerator_->info().uuid,
          engine_->Describe());
  use.engine = engine_.get();
  use.store_slots = store_slots;
  use.steps_ahead = config.steps_ahead;
  return use;
}

}  // namespace passel::job

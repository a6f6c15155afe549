// gpu_count - worker processes that count on GPUs, into one arena in host memory.
//
//   gpu_count WORKERS STEPS [locked|hogwild]
//
// Each process computes STEPS gradients on the device that it sees, two in flight, and pushes them.
// The network is so sure of the wrong class that its gradient is +1 for each weight of that class
// and -1 for each of the right one, exactly, whatever the others push meanwhile. So in the end
// every value says how many updates reached it. In `locked` all of them must have, and gpu_count
// prints RESULT and ends with 0; in `hogwild` it prints how many got lost. A gradient that is seen
// before all of it has come back from the device would show: its memory is poisoned before each
// step.
//
// Exit codes: 0 exact (hogwild: measured); 1 not, or a process failed; 2 wrong usage; 3 no GPU.

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "compute/accelerator_loader.h"
#include "nn/model_config.h"
#include "shm/arena.h"
#include "store/membership.h"
#include "store/open_store.h"
#include "train/model_plan.h"

namespace passel::testing {
namespace {

constexpr std::size_t kInputs = 20000;
constexpr std::size_t kClasses = 2;
constexpr std::size_t kBatch = 16;  // a power of two: the mean of kBatch equal floats is exact
constexpr std::size_t kImages = 32;
constexpr int kSlots = 2;
constexpr int kMaxProcesses = 64;
// Values stay integers that a float32 holds exactly, and far enough apart for the probabilities to
// be exactly 1 and 0.
constexpr float kFirst = 1 << 20;
constexpr std::uint64_t kMaxUpdates = 1 << 19;
constexpr float kPoison = 1e9F;
constexpr std::chrono::seconds kWait{30};
constexpr std::chrono::seconds kJobLimit{240};
constexpr int kNoGpu = 3;

ModelConfig Network() {
  ModelConfig model = DefaultModelConfig(ModelKind::kSoftmax);
  model.inputs = kInputs;
  model.classes = kClasses;
  model.loss = LossReduction::kMean;
  model.clip = false;
  return model;
}

// Of column 0 (the class that the network believes in) and 1 (the right one).
float FirstValue(std::size_t element) { return element % kClasses == 0 ? kFirst : -kFirst; }

int Fail(int worker, const Status& status) {
  std::fprintf(stderr, "gpu_count: worker %d: %s\n", worker, status.ToString().c_str());
  return 1;
}

Status Count(Accelerator& gpu, const shm::Arena& arena, int worker, std::uint64_t steps) {
  const ShardMemory memory = arena.memory();
  PASSEL_ASSIGN_OR_RETURN(
      const std::unique_ptr<ParameterStore> store,
      OpenStore(arena.plan(), std::span(&memory, 1), worker, SelfIdentity(), {}));
  if (worker == 0) {
    PASSEL_RETURN_IF_ERROR(store->Initialize([](VarId, std::span<float> values) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = FirstValue(i);
    }));
  }
  PASSEL_RETURN_IF_ERROR(store->WaitUntilInitialized(Deadline::After(kWait)));

  const std::vector<std::uint8_t> white(kImages * kInputs, 255);  // 1 as a float32
  const std::vector<std::uint8_t> labels(kImages, 1);
  StepEngineOptions options;
  options.network = {{{kInputs, kClasses}}, /*clip=*/false, /*mean=*/true};
  options.batch_size = kBatch;
  options.train = {white.data(), labels.data(), kImages};
  const VariableTable& table = store->variables();
  for (VarId id = 0; id < table.size(); ++id) {
    options.memory.variables.push_back(
        {{0, table[id].offset, 0, static_cast<std::size_t>(table[id].shape[0])}});
  }
  options.memory.shard_values.emplace_back(memory.values, memory.floats);
  for (int slot = 0; slot < kSlots; ++slot) {
    options.memory.gradient_slots.push_back({{memory.Gradient(worker, slot), memory.floats}});
  }
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<StepEngine> engine, gpu.CreateStepEngine(options));

  std::vector<std::uint32_t> batch(kBatch);
  for (std::size_t i = 0; i < kBatch; ++i) batch[i] = static_cast<std::uint32_t>(2 * i);
  struct Started {
    GradientBuffer gradient;
    std::uint32_t stamp = 0;
  };
  std::deque<Started> under_way;
  std::uint64_t started = 0;
  for (std::uint64_t pushed = 0; pushed < steps; ++pushed) {
    for (; started < steps && under_way.size() < kSlots; ++started) {
      PASSEL_ASSIGN_OR_RETURN(const ParamView view, store->Pull(PullMode::kView));
      const GradientBuffer gradient = store->LendGradient();
      if (gradient.slot() >= kSlots) return Internal("the store lent a buffer of its own");
      for (VarId id = 0; id < table.size(); ++id) {
        std::fill_n(gradient.values(id).data(), gradient.values(id).size(), kPoison);
      }
      PASSEL_RETURN_IF_ERROR(engine->Start(batch, gradient.slot()));
      under_way.push_back({gradient, view.stamp()});
    }
    bool finite = false;
    PASSEL_RETURN_IF_ERROR(engine->Finish(Deadline::After(kWait), &finite).status());
    if (!finite) return Internal("loss or gradient is not finite");
    const Started step = under_way.front();
    under_way.pop_front();
    PASSEL_ASSIGN_OR_RETURN(const Ticket ticket,
                            store->Push(step.gradient, step.stamp, Deadline::After(kWait)));
    PASSEL_RETURN_IF_ERROR(store->Wait(ticket, Deadline::After(kWait)).status());
  }
  return store->Leave();
}

int RunWorker(int worker, std::uint64_t steps, int fd) {
  Result<std::unique_ptr<Accelerator>> gpu = OpenAccelerator({});
  if (!gpu.ok()) {
    Fail(worker, gpu.status());
    return gpu.status().code() == Code::kNotFound ? kNoGpu : 1;
  }
  Result<shm::Arena> arena = shm::Arena::Adopt(FileDescriptor(fd));
  if (!arena.ok()) return Fail(worker, arena.status());
  const Status status = Count(**gpu, *arena, worker, steps);
  return status.ok() ? 0 : Fail(worker, status);
}

// In a process that has executed anew, since no CUDA outlives a fork. This process has one thread.
pid_t StartWorker(int worker, std::uint64_t steps, int arena) {
  std::vector<std::string> words = {"gpu_count", "--worker", std::to_string(worker),
                                    std::to_string(steps), std::to_string(arena)};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::fcntl(arena, F_SETFD, 0);
  ::execv("/proc/self/exe", argv.data());
  std::fprintf(stderr, "gpu_count: cannot execute /proc/self/exe: %s\n", std::strerror(errno));
  ::_exit(1);
}

// The worst exit code of them all, when all have ended or, after the limit, were killed.
int Await(std::vector<pid_t> pids) {
  const Deadline deadline = Deadline::After(kJobLimit);
  int worst = 0;
  bool killed = false;
  while (!pids.empty()) {
    for (std::size_t i = 0; i < pids.size();) {
      int status = 0;
      if (::waitpid(pids[i], &status, WNOHANG) != pids[i]) {
        ++i;
        continue;
      }
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
      if (WIFSIGNALED(status)) {
        std::fprintf(stderr, "gpu_count: a worker was ended by signal %d\n", WTERMSIG(status));
      }
      worst = std::max(worst, code);
      pids.erase(pids.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (deadline.Expired() && !killed) {
      std::fprintf(stderr, "gpu_count: %zu workers have not ended within %lld s\n", pids.size(),
                   static_cast<long long>(kJobLimit.count()));
      for (const pid_t pid : pids) ::kill(pid, SIGKILL);
      killed = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return worst;
}

int RunJob(int workers, std::uint64_t steps, Mode mode) {
  StorePlan plan;
  plan.mode = mode;
  plan.optimizer.kind = OptimizerKind::kSgd;
  plan.optimizer.learning_rate = 1;
  plan.num_workers = workers;
  plan.gradient_slots = kSlots;
  plan.variables = PlaceModel(Network(), 1, {}).value();
  shm::ArenaOptions options;
  options.job_id = "gpu_count";
  const MemoryBudget budget{std::uint64_t{1} << 30, "gpu_count"};
  Result<shm::Arena> created = shm::Arena::Create(plan, 0, options, budget);
  if (!created.ok()) {
    std::fprintf(stderr, "gpu_count: %s\n", created.status().message().c_str());
    return 1;
  }
  const shm::Arena& arena = *created;
  created->Publish();
  const std::int64_t begin = MonotonicNs();
  std::vector<pid_t> pids;
  for (int worker = 0; worker < workers; ++worker) {
    const pid_t pid = StartWorker(worker, steps, arena.fd());
    if (pid < 0) {
      std::fprintf(stderr, "gpu_count: cannot start a process: %s\n", std::strerror(errno));
      for (const pid_t started : pids) ::kill(started, SIGKILL);
      Await(pids);
      return 1;
    }
    pids.push_back(pid);
  }
  if (const int code = Await(pids); code != 0) return code;
  const double seconds = 1e-9 * static_cast<double>(MonotonicNs() - begin);

  const auto updates = static_cast<double>(static_cast<std::uint64_t>(workers) * steps);
  const ShardMemory memory = arena.memory();
  double lost = 0;
  std::size_t elements = 0;
  std::size_t impossible = 0;  // more than was pushed, or no whole number
  for (VarId id = 0; id < plan.variables.size(); ++id) {
    const VariableInfo& v = plan.variables[id];
    for (std::size_t i = 0; i < v.elements; ++i, ++elements) {
      const double seen = std::abs(static_cast<double>(FirstValue(i)) -
                                   static_cast<double>(memory.values[v.offset + i]));
      lost += updates - seen;
      if (seen > updates || seen != std::floor(seen)) ++impossible;
    }
  }
  const double share = lost / (updates * static_cast<double>(elements));
  fmt::print(
      "RESULT counting, {}, {} processes: {:.0f} updates of {} values, share lost {:.3g}, {} "
      "values "
      "that cannot be, {:.1f} s\n",
      ModeName(mode), workers, updates, elements, share, impossible, seconds);
  return impossible == 0 && (mode == Mode::kHogwild || lost == 0) ? 0 : 1;
}

bool ParseNumber(std::string_view text, std::uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc{} && end == text.data() + text.size();
}

int Main(const std::vector<std::string_view>& words) {
  std::uint64_t a = 0, b = 0, c = 0;
  if (words.size() == 4 && words[0] == "--worker" && ParseNumber(words[1], &a) &&
      ParseNumber(words[2], &b) && ParseNumber(words[3], &c)) {
    return RunWorker(static_cast<int>(a), b, static_cast<int>(c));
  }
  const std::string_view mode = words.size() == 3 ? words[2] : "locked";
  if (words.size() < 2 || words.size() > 3 || !ParseNumber(words[0], &a) ||
      !ParseNumber(words[1], &b) || a < 1 || a > kMaxProcesses || b < 1 || b > kMaxUpdates / a ||
      (mode != "locked" && mode != "hogwild")) {
    std::fprintf(stderr,
                 "gpu_count: usage: gpu_count WORKERS STEPS [locked|hogwild], with 1 to %d workers "
                 "and at most %llu updates in all\n",
                 kMaxProcesses, static_cast<unsigned long long>(kMaxUpdates));
    return 2;
  }
  return RunJob(static_cast<int>(a), b, mode == "locked" ? Mode::kLocked : Mode::kHogwild);
}

}  // namespace
}  // namespace passel::testing

int main(int argc, char** argv) { return passel::testing::Main({argv + 1, argv + argc}); }

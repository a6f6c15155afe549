// engine_job.h - one job of worker processes on arenas that this process created.

#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "conformance/arena_host.h"
#include "multiprocess/engine_board.h"
#include "support/dev_shm.h"
#include "support/test_seed.h"

namespace passel::testing {

/// For what is sure to come, on a busy machine.
inline constexpr std::chrono::milliseconds kPatience{20'000};

/// For the name of a test: no sign but letters, digits and '_'.
inline std::string NameOf(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '.' || c == '='; }, '_');
  return text;
}

/// A child process that is gone when this object is.
class Child {
 public:
  /// `failpoint` as in base/failpoint.h; empty: none. `fds` are inherited.
  Child(const std::vector<std::string>& command, const std::string& failpoint,
        const std::vector<int>& fds) {
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const pid_t parent = ::getpid();
    pid_ = ::fork();  // this process has one thread
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kExitUsage);
    for (const int fd : fds) ::fcntl(fd, F_SETFD, 0);
    if (failpoint.empty()) {
      ::unsetenv("PASSEL_FAILPOINT");
    } else {
      ::setenv("PASSEL_FAILPOINT", failpoint.c_str(), 1);
    }
    ::execv(argv[0], argv.data());
    ::_exit(kExitUsage);
  }
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), status_(std::exchange(other.status_, std::nullopt)) {}
  Child& operator=(Child&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(status_, other.status_);
    return *this;
  }
  ~Child() {
    if (pid_ <= 0 || status_) return;
    ::kill(pid_, SIGKILL);
    int status;
    ::waitpid(pid_, &status, 0);
  }

  pid_t pid() const { return pid_; }
  void Kill(int signal) { ::kill(pid_, signal); }

  /// True once it has ended; status() is set then.
  bool WaitEnded(std::chrono::milliseconds limit) { return WaitFor(limit, 0); }
  /// True once it is stopped (SIGSTOP) or has ended.
  bool WaitStopped(std::chrono::milliseconds limit) { return WaitFor(limit, WUNTRACED); }

  /// Its code(), waited for.
  int End() {
    WaitEnded(kPatience);
    return code();
  }

  /// The exit code, or minus the signal that ended it; -1000 while it runs.
  int code() const {
    if (!status_) return -1000;
    return WIFEXITED(*status_) ? WEXITSTATUS(*status_) : -WTERMSIG(*status_);
  }

 private:
  bool WaitFor(std::chrono::milliseconds limit, int flags) {
    if (status_) return true;
    const Deadline deadline = Deadline::After(limit);
    for (;;) {
      int status;
      const pid_t got = ::waitpid(pid_, &status, WNOHANG | flags);
      if (got == pid_) {
        if (WIFSTOPPED(status)) return true;
        status_ = status;
        return true;
      }
      if (deadline.Expired()) return false;
      ::usleep(500);
    }
  }

  pid_t pid_ = -1;
  std::optional<int> status_;
};

/// Whether `condition` comes true within `limit`.
template <typename Condition>
bool Await(std::chrono::milliseconds limit, Condition&& condition) {
  const Deadline deadline = Deadline::After(limit);
  while (!condition()) {
    if (deadline.Expired()) return false;
    ::usleep(200);
  }
  return true;
}

class EngineJob {
 public:
  EngineJob(Mode mode, int shards, int workers, const OptimizerConfig& optimizer, bool counting,
            int stall_ms = 10'000)
      : EngineJob(TestPlan(mode, shards, workers, optimizer), counting, stall_ms) {}
  EngineJob(const StorePlan& plan, bool counting, int stall_ms = 10'000)
      : plan_(plan), counting_(counting), stall_ms_(stall_ms), shm_before_(testing::DevShm()) {
    for (int s = 0; s < plan_.variables.shards(); ++s) {
      arenas_.push_back(MakeArena(plan_, s));
      memory_.push_back(arenas_.back().memory());
    }
    board_fd_ = FileDescriptor(::memfd_create("board", MFD_CLOEXEC));
    PASSEL_CHECK(::ftruncate(board_fd_.get(), sizeof(Board)) == 0, "memory for the board");
    board_ = MapBoard(board_fd_.get());
    PASSEL_CHECK(board_ != nullptr, "the board is mapped");
    // As the chief would, without being a member.
    std::uint64_t element = 0;
    for (const VariableInfo& v : plan_.variables.all()) {
      float* values = memory_[static_cast<std::size_t>(v.shard)].values + v.offset;
      for (std::size_t i = 0; i < v.elements; ++i) {
        values[i] = counting ? 0.0F : TestInitialValue(element++);
      }
    }
    for (const ShardMemory& m : memory_) {
      for (int s = 0; s < m.num_slots; ++s) {
        std::fill_n(m.slots[s], m.floats, SlotInitialValue(plan_.optimizer, s));
      }
      m.state->initialized.store(1);
    }
  }
  ~EngineJob() {
    ::munmap(board_, sizeof(Board));
    for (const std::string& name : testing::DevShm()) {
      EXPECT_TRUE(shm_before_.count(name) != 0) << "/dev/shm/" << name << " was left behind";
    }
  }
  EngineJob(const EngineJob&) = delete;
  EngineJob& operator=(const EngineJob&) = delete;

  /// Of workers that are started from now on: see engine_board.h.
  void SetPace(int pause_us, int turn_ms) {
    pause_us_ = pause_us;
    turn_ms_ = turn_ms;
  }

  Child Start(int worker, std::uint64_t steps, const std::string& failpoint = "",
              Eviction eviction = Eviction::kFence) {
    std::vector<std::string> command = {PASSEL_ENGINE_WORKER,
                                        std::to_string(worker),
                                        std::to_string(board_fd_.get()),
                                        std::to_string(steps),
                                        std::to_string(stall_ms_),
                                        counting_ ? "count" : "test",
                                        eviction == Eviction::kKill ? "kill" : "fence",
                                        std::to_string(pause_us_),
                                        std::to_string(turn_ms_)};
    std::vector<int> fds = {board_fd_.get()};
    for (const shm::Arena& arena : arenas_) {
      fds.push_back(arena.fd());
      command.push_back(std::to_string(arena.fd()));
    }
    return Child(command, failpoint, fds);
  }

  /// All workers, `victim` of them with `failpoint`.
  std::vector<Child> StartAll(std::uint64_t steps, int victim = -1,
                              const std::string& failpoint = "",
                              Eviction eviction = Eviction::kFence) {
    std::vector<Child> workers;
    for (int k = 0; k < plan_.num_workers; ++k) {
      workers.push_back(Start(k, steps, k == victim ? failpoint : "", eviction));
    }
    return workers;
  }

  std::int64_t global_step() const { return memory_[0].state->global_step.load(); }

  void Stop() {
    for (const ShardMemory& m : memory_) {
      m.state->stop.store(1);
      Notify(m.state->event);
    }
  }

  /// Runs the reference over rounds 1..n with the members that the workers named, and compares all
  /// values, bit for bit. `expect_all_of` must have been in every round.
  /// Where rounds go on without some of the workers, nobody can name the members: only a counting
  /// job can be checked then.
  void ExpectRoundsApplied(std::uint64_t n, std::uint64_t expect_all_of) {
    const ShardRules rules = plan_.Rules();
    const bool backup = rules.RoundSize() < rules.num_workers;
    ASSERT_TRUE(counting_ || !backup);
    ASSERT_EQ(board_->disagreements.load(), 0u);
    ASSERT_EQ(memory_[0].state->completed_round.load(), n);
    EXPECT_EQ(memory_[0].state->global_step.load(), static_cast<std::int64_t>(n));
    for (const ShardMemory& m : memory_) EXPECT_EQ(m.state->version.load(), n);
    ReferenceModel reference(plan_.variables, plan_.optimizer);
    for (std::uint64_t round = 1; round <= n; ++round) {
      const std::uint64_t mask = board_->members[round].load();
      if (!backup) {
        ASSERT_EQ(mask & expect_all_of, expect_all_of) << "round " << round;
      }
      std::vector<std::pair<int, int>> members;
      for (int k = 0; k < plan_.num_workers; ++k) {
        if (mask >> k & 1) members.emplace_back(k, rules.Quota(k));
      }
      if (!counting_) reference.StepOfSets(static_cast<std::int64_t>(round), round, members);
    }
    for (VarId id = 0; id < plan_.variables.size(); ++id) {
      const VariableInfo& v = plan_.variables[id];
      const float* values = memory_[static_cast<std::size_t>(v.shard)].values + v.offset;
      for (std::size_t i = 0; i < v.elements; ++i) {
        const float want = counting_ ? static_cast<float>(n) : reference.values(id)[i];
        ASSERT_EQ(std::memcmp(&values[i], &want, sizeof want), 0)
            << v.name << "[" << i << "] is " << values[i] << ", must be " << want;
      }
    }
  }

  /// Smallest and largest of all values.
  std::pair<float, float> Range() const {
    std::pair<float, float> range{1e30F, -1e30F};
    for (const VariableInfo& v : plan_.variables.all()) {
      const float* values = memory_[static_cast<std::size_t>(v.shard)].values + v.offset;
      for (std::size_t i = 0; i < v.elements; ++i) {
        range.first = std::min(range.first, values[i]);
        range.second = std::max(range.second, values[i]);
      }
    }
    return range;
  }

  /// ssp: the most that any worker was ahead at the start of a step.
  std::uint64_t max_clock_lead() const {
    std::uint64_t most = 0;
    for (int k = 0; k < plan_.num_workers; ++k) {
      most = std::max(most, memory_[0].tasks[k].counters.max_clock_lead.load());
    }
    return most;
  }

  std::uint64_t acked() const {
    std::uint64_t sum = 0;
    for (const auto& a : board_->acked) sum += a.load();
    return sum;
  }
  /// Every worker has made a step: one that has not joined yet is not asked to change the mode,
  /// say.
  bool AllTakePart() const {
    for (int k = 0; k < plan_.num_workers; ++k) {
      if (board_->acked[k].load() == 0) return false;
    }
    return true;
  }
  /// A counting job in modes that lose nothing: every value is the number of updates, but for up to
  /// `kills` that a killed worker had half applied or not counted.
  void ExpectNothingLost(std::uint64_t kills) const {
    std::uint64_t half_applied = kills;
    for (int k = 0; k < plan_.num_workers; ++k) {
      half_applied += memory_[0].tasks[k].counters.half_applied.load();
    }
    const auto [smallest, largest] = Range();
    EXPECT_GE(smallest, static_cast<float>(global_step()));
    EXPECT_LE(largest, static_cast<float>(global_step()) + static_cast<float>(half_applied));
  }
  /// Pushes go on being acknowledged, more than those that were under way.
  bool GetsOn() const {
    const std::uint64_t enough = acked() + 20;
    return Await(kPatience, [&] { return acked() >= enough; });
  }
  Board& board() { return *board_; }
  const ShardMemory& memory(int shard) const { return memory_[static_cast<std::size_t>(shard)]; }
  int shards() const { return static_cast<int>(memory_.size()); }

 private:
  const StorePlan plan_;
  const bool counting_;
  const int stall_ms_;
  int pause_us_ = 0;
  int turn_ms_ = 20'000;
  const std::set<std::string> shm_before_;
  std::vector<shm::Arena> arenas_;
  std::vector<ShardMemory> memory_;
  FileDescriptor board_fd_;
  Board* board_ = nullptr;
};

}  // namespace passel::testing

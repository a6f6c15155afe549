// engine_worker - one worker process of the engine tests. See engine_board.h for its arguments.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/file_descriptor.h"
#include "conformance/reference_update.h"
#include "multiprocess/engine_board.h"
#include "shm/arena.h"
#include "store/membership.h"
#include "store/open_store.h"

namespace passel::testing {
namespace {

constexpr auto kWait = std::chrono::seconds(20);

int ExitCodeOf(int worker, const Status& status) {
  std::fprintf(stderr, "worker %d: %s\n", worker, status.ToString().c_str());
  switch (status.code()) {
    case Code::kCancelled:
      return 0;
    case Code::kAborted:
      return kExitAborted;
    case Code::kDeadlineExceeded:
      return kExitDeadline;
    default:
      return kExitOther;
  }
}

// Who was counted in `round`, which we have just finished. Where rounds wait for us, nobody can
// have decided the next one yet.
void LogMembers(const ShardMemory& lead, std::uint64_t round, Board& board) {
  const Decision decision = Decision::Unpack(lead.state->decision.load());
  const std::uint64_t mask = lead.tasks[decision.worker].proposal[round & 1][0].load();
  if (decision.round != round || Decision::Unpack(lead.state->decision.load()).round != round) {
    return;  // we were fenced off, and the next push says so; or rounds do not wait for us
  }
  std::uint64_t expected = 0;
  if (!board.members[round].compare_exchange_strong(expected, mask) && expected != mask) {
    board.disagreements.fetch_add(1);
  }
}

Code CodeOf(const Status& status) { return status.code(); }
Code CodeOf(const Result<PushOutcome>& result) {
  return result.ok() ? Code::kOk : result.status().code();
}

// As the training loop waits.
template <typename Wait>
auto InTurns(std::chrono::milliseconds turn, Wait&& wait) {
  const Deadline deadline = Deadline::After(kWait);
  for (;;) {
    auto result = wait(deadline.Sooner(turn));
    if (CodeOf(result) != Code::kDeadlineExceeded || deadline.Expired()) return result;
  }
}

struct Task {
  int worker;
  std::uint64_t steps;
  bool counting;
  int pause_us;
  std::chrono::milliseconds turn;
};

int Run(const Task& task, Board& board, const WaitOptions& options, const std::vector<int>& fds) {
  const int worker = task.worker;
  std::vector<shm::Arena> arenas;
  std::vector<ShardMemory> memory;
  for (const int fd : fds) {
    Result<shm::Arena> arena = shm::Arena::Adopt(FileDescriptor(fd));
    if (!arena.ok()) return ExitCodeOf(worker, arena.status());
    memory.push_back(arena->memory());
    arenas.push_back(std::move(*arena));
  }
  auto opened = OpenStore(arenas[0].plan(), memory, worker, SelfIdentity(), options);
  if (!opened.ok()) return ExitCodeOf(worker, opened.status());
  ParameterStore& store = **opened;
  const Status ready =
      InTurns(task.turn, [&](Deadline turn) { return store.WaitUntilInitialized(turn); });
  if (!ready.ok()) return ExitCodeOf(worker, ready);
  int of_set = 0;  // gradients of this round that wait in our sum
  for (std::uint64_t pushed = 0;; ++pushed) {
    Result<ParamView> view = store.Pull(PullMode::kView);
    if (!view.ok()) return ExitCodeOf(worker, view.status());
    const bool rounds = IsRoundMode(store.mode());  // of this step: it may change at its end
    if (task.steps != 0 && (rounds ? view->version() : pushed) >= task.steps) break;
    const std::uint64_t round = view->version() + 1;
    GradientBuffer buffer = store.LendGradient();
    std::uint64_t element = 0;
    for (VarId id = 0; id < store.variables().size(); ++id) {
      for (float& g : buffer.values(id)) {
        g = task.counting ? -1.0F : TestGradient(worker + 100 * of_set, round, element++);
      }
    }
    if (task.pause_us != 0) ::usleep(static_cast<useconds_t>(task.pause_us));
    Result<Ticket> ticket = store.Push(buffer, view->stamp(), Deadline::After(kWait));
    if (!ticket.ok()) return ExitCodeOf(worker, ticket.status());
    const Result<PushOutcome> outcome =
        InTurns(task.turn, [&](Deadline turn) { return store.Wait(*ticket, turn); });
    if (!outcome.ok()) return ExitCodeOf(worker, outcome.status());
    board.acked[worker].fetch_add(1);
    if (!outcome->applied) board.dropped[worker].fetch_add(1);
    of_set = outcome->gradients == 0 ? of_set + 1 : 0;
    if (rounds && of_set == 0) LogMembers(memory[0], outcome->version, board);
  }
  if (Status s = store.Leave(); !s.ok()) return ExitCodeOf(worker, s);
  return 0;
}

}  // namespace
}  // namespace passel::testing

int main(int argc, char** argv) {
  using namespace passel::testing;
  if (argc < 10) return kExitUsage;
  Board* board = MapBoard(std::atoi(argv[2]));
  if (board == nullptr) return kExitUsage;
  passel::WaitOptions options;
  options.spin = std::chrono::microseconds(20);
  options.stall_limit = std::chrono::milliseconds(std::atoi(argv[4]));
  options.eviction =
      std::strcmp(argv[6], "kill") == 0 ? passel::Eviction::kKill : passel::Eviction::kFence;
  const Task task{std::atoi(argv[1]), std::strtoull(argv[3], nullptr, 10),
                  std::strcmp(argv[5], "count") == 0, std::atoi(argv[7]),
                  std::chrono::milliseconds(std::atoi(argv[8]))};
  std::vector<int> fds;
  for (int i = 9; i < argc; ++i) fds.push_back(std::atoi(argv[i]));
  return Run(task, *board, options, fds);
}

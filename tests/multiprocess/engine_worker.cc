// engine_worker - one worker process of the engine tests. See engine_board.h for its arguments.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/file_descriptor.h"
#include "conformance/reference_update.h"
#include "multiprocess/engine_board.h"
#include "shm/arena.h"
#include "store/in_process_store.h"
#include "store/membership.h"

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

int Run(int worker, Board& board, std::uint64_t steps, int stall_ms, bool counting,
        Eviction eviction, const std::vector<int>& fds) {
  std::vector<shm::Arena> arenas;
  std::vector<ShardMemory> memory;
  for (const int fd : fds) {
    Result<shm::Arena> arena = shm::Arena::Adopt(FileDescriptor(fd));
    if (!arena.ok()) return ExitCodeOf(worker, arena.status());
    memory.push_back(arena->memory());
    arenas.push_back(std::move(*arena));
  }
  EngineOptions options;
  options.spin = std::chrono::microseconds(20);
  options.stall_limit = std::chrono::milliseconds(stall_ms);
  options.eviction = eviction;
  auto opened = OpenStore(arenas[0].plan(), memory, worker, SelfIdentity(), options);
  if (!opened.ok()) return ExitCodeOf(worker, opened.status());
  ParameterStore& store = **opened;
  if (Status s = store.WaitUntilInitialized(Deadline::After(kWait)); !s.ok()) {
    return ExitCodeOf(worker, s);
  }
  int of_set = 0;  // gradients of this round that wait in our sum
  for (std::uint64_t pushed = 0;; ++pushed) {
    Result<ParamView> view = store.Pull(Selection::Everything(), PullMode::kView);
    if (!view.ok()) return ExitCodeOf(worker, view.status());
    const bool rounds = IsRoundMode(store.mode());  // of this step: it may change at its end
    if (steps != 0 && (rounds ? view->version() : pushed) >= steps) break;
    const std::uint64_t round = view->version() + 1;
    GradientBuffer buffer = store.LendGradient();
    std::uint64_t element = 0;
    for (VarId id = 0; id < store.variables().size(); ++id) {
      for (float& g : buffer.values(id)) {
        g = counting ? -1.0F : TestGradient(worker + 100 * of_set, round, element++);
      }
    }
    Result<Ticket> ticket = store.Push(buffer, view->stamp(), Deadline::After(kWait));
    if (!ticket.ok()) return ExitCodeOf(worker, ticket.status());
    Result<PushOutcome> outcome = store.Wait(*ticket, Deadline::After(kWait));
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
  if (argc < 8) return kExitUsage;
  Board* board = MapBoard(std::atoi(argv[2]));
  if (board == nullptr) return kExitUsage;
  std::vector<int> fds;
  for (int i = 7; i < argc; ++i) fds.push_back(std::atoi(argv[i]));
  return Run(std::atoi(argv[1]), *board, std::strtoull(argv[3], nullptr, 10), std::atoi(argv[4]),
             std::strcmp(argv[5], "count") == 0,
             std::strcmp(argv[6], "kill") == 0 ? passel::Eviction::kKill : passel::Eviction::kFence,
             fds);
}

#include "job/ps_of_ranks.h"

#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/log.h"
#include "job/exit_code.h"
#include "job/signals.h"

namespace passel::job {
namespace {

constexpr std::chrono::hours kWhileOthersTrain{24 * 365};  // the ps itself gives up those that hang
constexpr std::chrono::seconds kAfterAFailure{1};
constexpr std::chrono::seconds kAfterASignal{10};
constexpr std::chrono::milliseconds kLook{50};

// The arguments of this process, without the program's name.
std::vector<std::string> OwnArguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  if (!arguments.empty()) arguments.erase(arguments.begin());
  return arguments;
}

}  // namespace

Result<PsOfRanks> PsOfRanks::Start(const ResolvedConfig& config) {
  SpawnOptions spawn;
  spawn.arguments = OwnArguments();
  for (const char* name : {"ps_hosts", "worker_hosts"}) {
    spawn.arguments.push_back(std::string("--") + name + "=" + config.Find(name)->value);
  }
  for (const char* flag : {"--job_name=ps", "--task_index=0"}) spawn.arguments.emplace_back(flag);
  PASSEL_ASSIGN_OR_RETURN(Subprocess process, Subprocess::Spawn(spawn));
  return PsOfRanks(std::move(process));
}

int PsOfRanks::AwaitEnd(int code) {
  // From here on a signal is for the ps. One that came before has ended the worker.
  Result<SignalEvents> signals = SignalEvents::Create();
  Deadline limit =
      code == kExitDone ? Deadline::After(kWhileOthersTrain) : Deadline::After(kAfterAFailure);
  for (;;) {
    const Result<ExitState> ended = process_.Reap(limit.Sooner(kLook));
    if (ended.ok()) {
      if (code != kExitDone || (!ended->signalled && ended->code == kExitDone)) return code;
      LogError("ps/0 {}", ended->ToString());
      return ended->signalled ? kExitRestartMe : ended->code;
    }
    if (const int signal = signals.ok() ? signals->Next() : 0; signal != 0) {
      process_.Signal(signal);
      limit = Deadline::After(kAfterASignal);
    }
    if (limit.Expired()) {
      process_.Signal(SIGTERM);
      if (!process_.Reap(Deadline::After(kAfterAFailure)).ok()) process_.Signal(SIGKILL);
      return code;
    }
  }
}

}  // namespace passel::job

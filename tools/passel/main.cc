// passel - train with a parameter server at memory speed.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "base/clock.h"
#include "base/nvtx.h"
#include "base/output.h"
#include "job/exit_code.h"
#include "job/signals.h"
#include "tools/passel/command_line.h"
#include "tools/passel/commands.h"
#include "tools/passel/processor_time.h"

namespace passel {

namespace {

// The place of the lone -- of `passel run ... -- PROGRAM ...`; argc for everything else. What is
// behind it are nobody's flags.
int EndOfOwnWords(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "run") return argc;
  return static_cast<int>(std::find(argv + 2, argv + argc, std::string_view("--")) - argv);
}

void AddCommands(Command& program, std::span<char* const> behind, std::int64_t start_ns) {
  AddTrainCommand(program, start_ns);
  AddLaunchCommand(program, start_ns);
  AddTaskCommand(program, start_ns);
  AddRunCommand(program, behind, start_ns);
  AddEvalCommand(program);
  AddPredictCommand(program);
  AddCkptCommand(program);
  AddCtlCommand(program);
  AddDataCommand(program);
  AddTopologyCommand(program);
  AddBenchCommand(program, start_ns);
  AddHelpCommand(program);
}

constexpr const char* kNoMemory = "passel: this process may not allocate more memory\n";

std::terminate_handler g_by_default = nullptr;

// What a thread does not catch, in the words that main() has for it. Whoever waits for the process
// sees the same code.
void EndAtOnce() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    (void)!::write(STDERR_FILENO, kNoMemory, std::char_traits<char>::length(kNoMemory));
    ::_exit(job::kExitUsage);
  } catch (...) {
    g_by_default();
  }
  std::abort();
}

int Main(int argc, char** argv) {
  const std::int64_t start_ns = MonotonicNs();
  job::EndOnSignals();
  nvtx::Initialize();
  ::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of write()
  WatchProcessorTime(STDERR_FILENO);
  const int own = EndOfOwnWords(argc, argv);
  const std::span<char* const> behind(argv + std::min(own + 1, argc), argv + argc);
  return RunCommandLine(own, argv,
                        [&](Command& program) { AddCommands(program, behind, start_ns); });
}

}  // namespace
}  // namespace passel

int main(int argc, char** argv) {
  passel::OpenMissingStreams();
  passel::g_by_default = std::set_terminate(passel::EndAtOnce);
  try {
    return passel::Main(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs(passel::kNoMemory, stderr);
    return passel::job::kExitUsage;
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) {
      std::fprintf(stderr, "passel: %s\n", error.what());
      return passel::job::kExitFailed;
    }
    const passel::Status status = passel::ErrnoStatus(EAGAIN, "cannot start a thread");
    std::fprintf(stderr, "passel: %s\n", status.message().c_str());
    return passel::job::ExitCodeFor(status);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "passel: %s\n", error.what());
    return passel::job::kExitFailed;
  }
}

// passel - train with a parameter server at memory speed.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "base/output.h"
#include "tools/passel/arguments.h"
#include "tools/passel/commands.h"
#include "tools/passel/exit_code.h"
#include "tools/passel/signals.h"

namespace passel {

std::int64_t g_program_start_ns = 0;

namespace {

// The last lines of a log, before they are given up.
constexpr std::chrono::seconds kReaderPatience{1};

// OpenBLAS starts a thread for each core before main() begins unless this variable says 1, and
// these threads wait forever where address space is short. Here --threads_per_worker decides, so
// this program is executed once more with the variable.
void StartWithoutBlasThreads(char** argv) {
  constexpr const char* kVariable = "OPENBLAS_NUM_THREADS";
  const char* const value = std::getenv(kVariable);
  if (value != nullptr && std::strcmp(value, "1") == 0) return;
  std::array<char, 4096> self;
  const ssize_t length = ::readlink("/proc/self/exe", self.data(), self.size() - 1);
  if (length <= 0) return;
  self[static_cast<std::size_t>(length)] = '\0';
  ::setenv(kVariable, "1", 1);
  ::execv(self.data(), argv);  // if it cannot be, we go on as we are
}

// The exit code after all that goes to standard output: a full disk, say, is an error, while the
// pipe of a reader that has gone ends us by a signal.
int EndOutput(const CLI::App& app, int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  fmt::print(stderr, "{}: not everything could be printed: {}\n", CommandName(app),
             std::strerror(errno));
  return code == kExitDone ? kExitFailed : code;
}

int Main(int argc, char** argv) {
  CLI::App app{"Trains with a parameter server: workers share the parameters in memory.", "passel"};
  app.set_version_flag("--version", "passel " PASSEL_VERSION "\nbuilt " + nvtx::Describe());
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help of all commands");
  Run run;
  AddTrainCommand(app, &run);
  AddLaunchCommand(app, &run);
  AddTaskCommand(app, &run);
  AddEvalCommand(app, &run);
  AddPredictCommand(app, &run);
  AddCtlCommand(app, &run);
  AddDataCommand(app, &run);
  AddTopologyCommand(app, &run);
  AddBenchCommand(app, &run);
  try {
    app.parse(ReversedArguments(argc, argv));
  } catch (const CLI::Success& request) {  // --help, --version
    return EndOutput(app, app.exit(request));
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "{}\n", Explain(app, error));
    return kExitUsage;
  }
  if (const Status status = CheckArguments(app); !status.ok()) {
    fmt::print(stderr, "{}: {}\n", CommandName(app), status.message());
    return kExitUsage;
  }
  const int code = run();
  for (const Stream stream : {Stream::kOut, Stream::kErr}) FlushOutput(stream, kReaderPatience);
  return EndOutput(app, code);
}

}  // namespace
}  // namespace passel

int main(int argc, char** argv) {
  passel::OpenMissingStreams();
  passel::g_program_start_ns = passel::MonotonicNs();
  passel::StartWithoutBlasThreads(argv);
  passel::EndOnSignals();
  passel::nvtx::Initialize();
  ::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of write()
  try {
    return passel::Main(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("passel: this process may not allocate more memory\n", stderr);
    return passel::kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "passel: %s\n", error.what());
    return passel::kExitFailed;
  }
}

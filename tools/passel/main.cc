// passel - train with a parameter server at memory speed.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "base/output.h"
#include "job/exit_code.h"
#include "job/signals.h"
#include "tools/passel/arguments.h"
#include "tools/passel/commands.h"
#include "tools/passel/processor_time.h"

namespace passel {

std::int64_t g_program_start_ns = 0;

namespace {

// The last lines of a log, before they are given up.
constexpr std::chrono::seconds kReaderPatience{1};

// The exit code after all that goes to standard output: a full disk, say, is an error, while the
// pipe of a reader that has gone ends us by a signal.
int EndOutput(const CLI::App& app, int code) {
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return code;
  // What an earlier write failed of, nobody knows any more.
  fmt::print(stderr, "{}: not everything could be printed: {}\n", CommandName(app),
             flushed ? "writing to standard output failed" : std::strerror(errno));
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
  passel::EndOnSignals();
  passel::nvtx::Initialize();
  ::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of write()
  passel::WatchProcessorTime(STDERR_FILENO);
  try {
    return passel::Main(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("passel: this process may not allocate more memory\n", stderr);
    return passel::kExitUsage;
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) {
      std::fprintf(stderr, "passel: %s\n", error.what());
      return passel::kExitFailed;
    }
    const passel::Status status = passel::ErrnoStatus(EAGAIN, "cannot start a thread");
    std::fprintf(stderr, "passel: %s\n", status.message().c_str());
    return passel::ExitCodeFor(status);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "passel: %s\n", error.what());
    return passel::kExitFailed;
  }
}

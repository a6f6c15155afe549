// passel - train with a parameter server at memory speed.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "base/clock.h"
#include "base/log.h"
#include "tools/passel/commands.h"
#include "tools/passel/exit_code.h"
#include "tools/passel/signals.h"

namespace passel {

std::int64_t g_program_start_ns = 0;

namespace {

int Main(int argc, char** argv) {
  CLI::App app{"Trains with a parameter server: workers share the parameters in memory.", "passel"};
  app.set_version_flag("--version", "passel " PASSEL_VERSION);
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help of all commands");
  Run run;
  AddTrainCommand(app, &run);
  AddLaunchCommand(app, &run);
  AddTaskCommand(app, &run);
  AddEvalCommand(app, &run);
  AddCtlCommand(app, &run);
  AddDataCommand(app, &run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    const CLI::App* used = &app;
    for (auto chosen = used->get_subcommands(); !chosen.empty(); chosen = used->get_subcommands()) {
      used = chosen[0];
    }
    std::string name = used == &app ? "passel" : "passel " + used->get_name();
    if (used->get_parent() != nullptr && used->get_parent() != &app) {
      name = "passel " + used->get_parent()->get_name() + " " + used->get_name();
    }
    fmt::print(stderr, "{}: {}: see {} --help\n", name, error.what(), name);
    return kExitUsage;
  }
  return run();
}

}  // namespace
}  // namespace passel

int main(int argc, char** argv) {
  passel::g_program_start_ns = passel::MonotonicNs();
  passel::EndOnSignals();
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

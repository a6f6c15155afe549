// passel - train with a parameter server at memory speed.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "tools/passel/commands.h"
#include "tools/passel/exit_code.h"
#include "tools/passel/signals.h"

namespace passel {

std::int64_t g_program_start_ns = 0;

namespace {

// As the parser wants them: the last one first, without the program's name. It takes "--name=" for
// an option whose value comes next; here that is an empty value.
std::vector<std::string> ReversedArguments(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const bool empty_value =
        text.size() > 3 && text.rfind("--", 0) == 0 && text.find('=') == text.size() - 1;
    arguments.push_back(empty_value ? text.substr(0, text.size() - 1) : text);
    if (empty_value) arguments.emplace_back();
  }
  std::reverse(arguments.begin(), arguments.end());
  return arguments;
}

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
  AddPredictCommand(app, &run);
  AddCtlCommand(app, &run);
  AddDataCommand(app, &run);
  try {
    app.parse(ReversedArguments(argc, argv));
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

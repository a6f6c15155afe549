// commands.h - the subcommands of the program. Each adds itself to the command line; the chosen one
// sets `*run`, which does the work and returns the exit code.

#pragma once

#include <cstdint>
#include <functional>

namespace CLI {
class App;
}

namespace passel {

using Run = std::function<int()>;

/// MonotonicNs() at the start of main().
extern std::int64_t g_program_start_ns;

void AddTrainCommand(CLI::App& app, Run* run);
void AddLaunchCommand(CLI::App& app, Run* run);
void AddTaskCommand(CLI::App& app, Run* run);
void AddEvalCommand(CLI::App& app, Run* run);
void AddPredictCommand(CLI::App& app, Run* run);
void AddCtlCommand(CLI::App& app, Run* run);
void AddDataCommand(CLI::App& app, Run* run);
void AddTopologyCommand(CLI::App& app, Run* run);
void AddBenchCommand(CLI::App& app, Run* run);

}  // namespace passel

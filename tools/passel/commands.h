// commands.h - the subcommands of the program. Each adds itself to the command line.

#pragma once

#include <cstdint>
#include <span>

#include "job/far_job.h"
#include "tools/passel/command_line.h"

namespace passel {

// `start_ns`: MonotonicNs() at the start of main(), from which reports count.
void AddTrainCommand(Command& program, std::int64_t start_ns);
void AddLaunchCommand(Command& program, std::int64_t start_ns);
void AddTaskCommand(Command& program, std::int64_t start_ns);
/// `behind`: the words behind the lone --, which are the user's program.
void AddRunCommand(Command& program, std::span<char* const> behind, std::int64_t start_ns);
void AddEvalCommand(Command& program);
void AddPredictCommand(Command& program);
void AddCkptCommand(Command& program);
void AddCtlCommand(Command& program);
void AddScaleCommand(Command& ctl);
/// Flags that name a job on other hosts.
void AddFarJobFlags(Command& command, job::FarJobFlags* flags);
void AddDataCommand(Command& program);
void AddTopologyCommand(Command& program);
void AddBenchCommand(Command& program, std::int64_t start_ns);
void AddHelpCommand(Command& program);

}  // namespace passel

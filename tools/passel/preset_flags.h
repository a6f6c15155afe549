// preset_flags.h - --print_preset, and what --preset does to the other flags.

#pragma once

#include <set>
#include <string>

#include "base/status.h"
#include "job/data_settings.h"
#include "job/device_settings.h"
#include "job/job_settings.h"
#include "tools/passel/command_line.h"

namespace passel {

/// Adds --print_preset, which prints and ends the program while the command line is read.
void AddPrintPreset(Command& command);

/// Makes the values of the preset `name` the defaults of those flags that `command` has and nobody
/// gave, and sets the variables behind them; returns these flags. "" changes nothing. `in_file`:
/// flags that a file sets and that are not in the options yet. If a stop rule was given, there or
/// on the command line, the preset's stop rules do not count. To be called when the command line
/// has been read. Errors: kInvalidArgument for an unknown name.
Result<std::set<std::string>> ApplyPreset(Command& command, const std::string& name,
                                          const std::set<std::string>& in_file = {});

/// If `changed`, of ApplyPreset(), holds data_dir: makes it a place to look at, not one that was
/// asked for.
void NotePresetDir(const std::string& preset, const std::set<std::string>& changed,
                   job::SourceSettings* source);

/// Says of `devices` what `changed`, of ApplyPreset(), holds of them.
void NotePresetDevices(const std::string& preset, const std::set<std::string>& changed,
                       job::DeviceSettings* devices);

/// Does with what was given what the program of the preset does: some have one folder for
/// checkpoints and summaries; what has no meaning there goes, with a warning. To be called when the
/// file has been read too.
void FollowProgram(const std::string& preset, job::JobSettings* flags);

/// Whether fewer GPUs than workers are an error in the program that the preset stands for.
bool WantsGpuPerWorker(const std::string& preset);

}  // namespace passel

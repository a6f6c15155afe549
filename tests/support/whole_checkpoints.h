// whole_checkpoints.h - whether a folder has what its index says, and nothing that is half done.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "io/checkpoint_folder.h"

namespace passel::testing {

/// The step of the newest checkpoint, which is whole; -1: none, -2: it is not whole.
inline std::int64_t WholeStep(const std::string& folder) {
  const Result<CheckpointIndex> index = ReadCheckpointIndex(folder);
  EXPECT_TRUE(index.ok()) << index.status().ToString();
  if (!index.ok() || index->kept.empty()) return -1;
  for (const CheckpointIndex::Entry& entry : index->kept) {
    const Status whole = OpenCheckpoint(folder, entry.name).status();
    EXPECT_TRUE(whole.ok()) << whole.ToString();
    if (!whole.ok()) return -2;
  }
  return StepOfCheckpoint(index->kept.back().name).value_or(-2);
}

/// Of saves that were begun.
inline std::string UnfinishedFiles(const std::string& folder) {
  std::string names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!TargetOfTemporary(name).empty()) names += name + "\n";
  }
  return names;
}

}  // namespace passel::testing

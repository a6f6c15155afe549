// small_checkpoints.h - checkpoints of eight floats, in a folder.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "io/checked_tensors.h"
#include "io/checkpoint_folder.h"

namespace passel::test {

// Every value of a checkpoint is its step.
inline Status WriteParts(const std::string& folder, std::int64_t step, int parts = 1,
                         const std::string& save = "", FileOps& ops = FileOps::Real()) {
  const std::vector<float> values(8, static_cast<float>(step));
  for (int part = 0; part < parts; ++part) {
    const TensorView tensor = {"w", DType::kF32, {2, 4}, std::as_bytes(std::span(values))};
    PASSEL_RETURN_IF_ERROR(
        WriteCheckedTensors(PartPath(folder, step, part, parts), {&tensor, 1},
                            {{kSaveKey, save.empty() ? "save " + std::to_string(step) : save},
                             {kStepKey, std::to_string(step)},
                             {kPartKey, std::to_string(part)},
                             {kPartsKey, std::to_string(parts)}},
                            ops));
  }
  return {};
}

inline Result<CheckpointFolder> Own(const std::string& path, const KeepPolicy& policy = {},
                                    FileOps& ops = FileOps::Real()) {
  return CheckpointFolder::Own(path, policy, 1000, ops);
}

inline void Save(CheckpointFolder& folder, std::int64_t step, double now = 2000, bool best = false,
                 int parts = 1, FileOps& ops = FileOps::Real()) {
  ASSERT_TRUE(WriteParts(folder.path(), step, parts, "", ops).ok());
  Status done = folder.Commit(step, parts, now);
  if (done.ok() && best) done = folder.MarkBest(CheckpointName(step), {0.5, step});
  ASSERT_TRUE(done.ok()) << done.ToString();
}

}  // namespace passel::test

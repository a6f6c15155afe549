// snapshot.h - what a job has come to, to be held against what it is later.

#pragma once

#include <cstdint>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "multiprocess/engine_job.h"

namespace passel::testing {

struct Snapshot {
  std::vector<std::vector<float>> arrays;  // of each shard: values, slot variables
  std::size_t arrays_per_shard;
  std::size_t block_floats;
  std::int64_t global_step;
  std::uint64_t completed_round;
};

/// REQUIRES: nobody writes meanwhile.
inline Snapshot TakeSnapshot(const EngineJob& job) {
  const ShardMemory& lead = job.memory(0);
  Snapshot snapshot{{},
                    1 + static_cast<std::size_t>(lead.num_slots),
                    lead.block_floats,
                    job.global_step(),
                    lead.state->completed_round.load()};
  for (int s = 0; s < job.shards(); ++s) {
    const ShardMemory& m = job.memory(s);
    snapshot.arrays.emplace_back(m.values, m.values + m.floats);
    for (int k = 0; k < m.num_slots; ++k) {
      snapshot.arrays.emplace_back(m.slots[k], m.slots[k] + m.floats);
    }
  }
  return snapshot;
}

/// Blocks that are not the same to the last bit. Expects that no step was counted in between.
inline std::size_t BlocksThatDiffer(const Snapshot& a, const Snapshot& b) {
  EXPECT_EQ(a.global_step, b.global_step);
  EXPECT_EQ(a.completed_round, b.completed_round);
  std::set<std::pair<std::size_t, std::size_t>> differ;  // shard, block
  for (std::size_t i = 0; i < a.arrays.size(); ++i) {
    for (std::size_t x = 0; x < a.arrays[i].size(); ++x) {
      if (std::memcmp(&a.arrays[i][x], &b.arrays[i][x], sizeof(float)) == 0) continue;
      differ.emplace(i / a.arrays_per_shard, x / a.block_floats);
    }
  }
  return differ.size();
}

}  // namespace passel::testing

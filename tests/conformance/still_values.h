// still_values.h - whether anything of a job moves while its workers meet.

#pragma once

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "conformance/store_suite.h"
#include "store/shard_reader.h"

namespace passel::testing {

// All that a copy of a job has, as it stands.
struct Everything {
  std::vector<float> floats;
  std::vector<std::uint64_t> counts;
  int mixed = 0;  // blocks whose holder died within them
  bool operator==(const Everything&) const = default;
};

inline Everything Look(const std::vector<ShardMemory>& memory) {
  Everything all;
  for (const ShardMemory& m : memory) {
    const ShardReader reader(m);
    for (std::size_t b = 0; b < m.num_blocks; ++b) {
      std::vector<std::vector<float>> parts(static_cast<std::size_t>(1 + m.num_slots),
                                            std::vector<float>(m.BlockSize(b)));
      std::vector<float*> out;
      for (auto& part : parts) out.push_back(part.data());
      const Result<bool> exact = reader.ReadBlock(b, out, Deadline::After(kBound));
      EXPECT_TRUE(exact.ok()) << "block " << b << ": " << exact.status().ToString();
      all.mixed += exact.ok() && !*exact;
      for (const auto& part : parts) all.floats.insert(all.floats.end(), part.begin(), part.end());
    }
    all.counts.push_back(m.state->version.load());
    all.counts.push_back(static_cast<std::uint64_t>(m.state->optimizer_step.load()));
  }
  all.counts.push_back(static_cast<std::uint64_t>(memory[0].state->global_step.load()));
  all.counts.push_back(memory[0].state->completed_round.load());
  for (int k = 0; k < memory[0].num_workers; ++k) {
    all.counts.push_back(Arrival::Unpack(memory[0].tasks[k].clock.load()).at);
  }
  return all;
}

inline void ExpectStill(const std::vector<ShardMemory>& memory,
                        std::chrono::milliseconds time = std::chrono::milliseconds(3)) {
  const Everything before = Look(memory);
  std::this_thread::sleep_for(time);
  EXPECT_TRUE(Look(memory) == before) << "something moves";
}

}  // namespace passel::testing

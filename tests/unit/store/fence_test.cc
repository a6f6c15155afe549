// What a worker that was evicted may still write when it goes on: nothing, wherever it was.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "store/block_claims.h"
#include "store/membership.h"
#include "store/mode_change.h"
#include "store/open_store.h"

namespace passel {
namespace {

constexpr auto kLong = std::chrono::seconds(20);

class FenceTest : public ::testing::Test {
 protected:
  void Start(Mode mode, int shards, std::int64_t elements, std::size_t block_floats) {
    StorePlan plan;
    plan.mode = mode;
    plan.num_workers = 2;
    plan.block_floats = block_floats;
    plan.optimizer.learning_rate = 1.0;
    std::vector<VariableInfo> variables;
    for (int s = 0; s < shards; ++s) {
      VariableInfo v;
      v.name = v.logical = "v" + std::to_string(s);
      v.shape = {elements};
      v.shard = s;
      variables.push_back(v);
    }
    plan.variables = *VariableTable::Build(variables, shards);
    stores_.clear();
    arena_ = std::move(*InProcessArena::Create(plan));
    for (int worker = 0; worker < 2; ++worker) stores_.push_back(*arena_->Open(worker));
    ASSERT_TRUE(stores_[0]
                    ->Initialize([](VarId, std::span<float> values) {
                      std::fill(values.begin(), values.end(), 0.0F);
                    })
                    .ok());
    ASSERT_TRUE(stores_[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
  }
  GradientBuffer Gradient(int worker) {
    const GradientBuffer buffer = stores_[static_cast<std::size_t>(worker)]->LendGradient();
    for (VarId id = 0; id < arena_->plan().variables.size(); ++id) {
      std::ranges::fill(buffer.values(id), -1.0F);
    }
    return buffer;
  }
  std::uint32_t Pull(int worker) {
    return stores_[static_cast<std::size_t>(worker)]->Pull(PullMode::kView)->stamp();
  }
  std::ptrdiff_t Changed(int shard, float from = 0) const {
    const ShardMemory& m = arena_->shard(shard);
    return std::count_if(m.values, m.values + m.floats, [&](float x) { return x != from; });
  }

  std::unique_ptr<InProcessArena> arena_;
  std::vector<std::unique_ptr<ParameterStore>> stores_;
};

// Stopped while it computed; meanwhile the job went over to rounds.
TEST_F(FenceTest, WhoIsEvictedPushesToNoShard) {
  Start(Mode::kHogwild, 2, 4096, 2048);
  const std::uint32_t stamp = Pull(1);
  const GradientBuffer gradient = Gradient(1);
  ASSERT_TRUE(WishForMode(arena_->shard(0), {Mode::kBarrier}).ok());
  ASSERT_TRUE(Evict(arena_->shard(0), 1, 1));
  for (int step = 0; step < 3; ++step) {
    const std::uint32_t own = Pull(0);
    const Result<Ticket> ticket = stores_[0]->Push(Gradient(0), own, Deadline::After(kLong));
    ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
    ASSERT_TRUE(stores_[0]->Wait(*ticket, Deadline::After(kLong)).ok());
  }
  EXPECT_EQ(stores_[1]->Push(gradient, stamp, Deadline::After(kLong)).status().code(),
            Code::kAborted);
  for (int shard = 0; shard < 2; ++shard) {
    EXPECT_EQ(Changed(shard, 3), 0) << "shard " << shard;
    EXPECT_EQ(arena_->shard(shard).state->version.load(), 3u);
  }
}

// It waits for a block of the last shard, and whoever waits for it meanwhile looks at the lead.
TEST_F(FenceTest, WhoWaitsOnAnotherShardIsHeardOfOnTheLead) {
  Start(Mode::kLocked, 2, 64, 16);
  const ShardMemory& lead = arena_->shard(0);
  const std::uint32_t stamp = Pull(0);
  const GradientBuffer gradient = Gradient(0);
  arena_->shard(1).blocks[0].claim.store(Claim{1, 1}.Pack());
  const std::int64_t begin = MonotonicNs();
  EXPECT_EQ(stores_[0]
                ->Push(gradient, stamp, Deadline::After(std::chrono::milliseconds(300)))
                .status()
                .code(),
            Code::kDeadlineExceeded);
  EXPECT_GT(lead.tasks[0].heartbeat_ns.load(), begin + 100'000'000);
  // Once the lead says that the holder's life is over, its claim is nobody's.
  ASSERT_TRUE(Evict(lead, 1, 1));
  EXPECT_TRUE(stores_[0]->Push(Gradient(0), Pull(0), Deadline::After(kLong)).ok());
}

// All blocks are busy, so it goes ahead without their claims, until it is evicted.
TEST_F(FenceTest, WhoGoesAheadWithoutAClaimStopsToo) {
  constexpr std::int64_t kBlocks = 200'000;
  // On a busy machine the push may be over before the eviction begins.
  Code code = Code::kOk;
  for (int i = 0; i < 30 && code == Code::kOk; ++i) {
    Start(Mode::kHogwild, 1, 16 * kBlocks, 16);
    const ShardMemory& m = arena_->shard(0);
    for (std::size_t b = 0; b < m.num_blocks; ++b) m.blocks[b].claim.store(Claim{1, 0}.Pack());
    const std::uint32_t stamp = Pull(1);
    const GradientBuffer gradient = Gradient(1);
    std::thread evictor([&] {
      while (m.tasks[1].counters.overlapped_blocks.load() == 0) {
      }
      Evict(m, 1, 1);
    });
    code = stores_[1]->Push(gradient, stamp, Deadline::After(kLong)).status().code();
    evictor.join();
  }
  EXPECT_EQ(code, Code::kAborted);
  EXPECT_LT(Changed(0), 16 * kBlocks);
}

}  // namespace
}  // namespace passel

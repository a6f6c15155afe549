// Shards of which one has lost its values, and the others have not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/process_identity.h"
#include "store/membership.h"
#include "store/open_store.h"

namespace passel {
namespace {

using ::testing::HasSubstr;

StorePlan PlanOf(int shards) {
  StorePlan plan;
  plan.num_workers = 2;
  std::vector<VariableInfo> variables(static_cast<std::size_t>(shards));
  for (int s = 0; s < shards; ++s) {
    VariableInfo& v = variables[static_cast<std::size_t>(s)];
    v.name = v.logical = "v" + std::to_string(s);
    v.shape = {64};
    v.shard = s;
  }
  plan.variables = *VariableTable::Build(std::move(variables), shards);
  return plan;
}

constexpr int kShards = 3;

Deadline Soon() { return Deadline::After(std::chrono::seconds(10)); }

class LostShardTest : public ::testing::Test {
 protected:
  std::unique_ptr<InProcessArena> Make() { return *InProcessArena::Create(plan_); }
  // The chief writes the first values, and trains for `pushes`.
  void Begin(InProcessArena& arena, int pushes) {
    const auto store = *arena.Open(0);
    ASSERT_TRUE(store->Initialize([](VarId, std::span<float> v) { std::ranges::fill(v, 1); }).ok());
    for (int i = 0; i < pushes; ++i) {
      const ParamView view = *store->Pull(PullMode::kView);
      const GradientBuffer gradient = store->LendGradient();
      const Ticket ticket = *store->Push(gradient, view.stamp(), Soon());
      ASSERT_TRUE(store->Wait(ticket, Soon()).ok());
    }
    ASSERT_TRUE(store->Leave().ok());
  }
  Status OpenOn(const std::vector<ShardMemory>& shards, int worker = 0) {
    return OpenStore(plan_, shards, worker, SelfIdentity(), {}).status();
  }
  std::vector<ShardMemory> ShardsOf(const InProcessArena& arena) {
    return {arena.shard(0), arena.shard(1), arena.shard(2)};
  }

  const StorePlan plan_ = PlanOf(kShards);
};

TEST_F(LostShardTest, IsNamedWhicheverItIs) {
  for (int lost = 0; lost < kShards; ++lost) {
    SCOPED_TRACE(lost);
    const auto arena = Make();
    const auto fresh = Make();
    Begin(*arena, 5);
    std::vector<ShardMemory> shards = ShardsOf(*arena);
    EXPECT_TRUE(OpenOn(shards, 1).ok()) << "nothing is lost";
    shards[static_cast<std::size_t>(lost)] = fresh->shard(lost);
    const Status status = OpenOn(shards);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(),
                HasSubstr("ps/" + std::to_string(lost) + " has lost its values while ps/"));
    EXPECT_THAT(status.message(), HasSubstr("those of 5 updates"));
    EXPECT_EQ(StateOf(fresh->shard(lost), 0).phase, Phase::kExpected) << "nobody joined";
  }
}

TEST_F(LostShardTest, NothingIsLostBeforeTheFirstUpdate) {
  const auto arena = Make();
  const auto fresh = Make();
  // The chief died before it had opened the lead, which is the last.
  Begin(*arena, 0);
  std::vector<ShardMemory> shards = ShardsOf(*arena);
  shards[0] = fresh->shard(0);
  EXPECT_TRUE(OpenOn(shards).ok());
  EXPECT_TRUE(OpenOn(ShardsOf(*Make())).ok());
}

TEST_F(LostShardTest, ValuesOfTwoBeginningsAreNotMixed) {
  const auto one = Make();
  const auto other = Make();
  Begin(*one, 3);
  Begin(*other, 3);
  std::vector<ShardMemory> shards = ShardsOf(*one);
  shards[2] = other->shard(2);
  const Status status = OpenOn(shards);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("ps/2 and ps/0 have values of different beginnings"));
}

}  // namespace
}  // namespace passel

// The arena in device memory: pushes of several processes' devices, and an engine that reads it.

#include "cuda/mapped_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <set>
#include <vector>

#include "cuda/arena_workers.h"
#include "cuda/engine_under_test.h"
#include "cuda/updates_on_both.h"
#include "optim/update_kernels.h"
#include "support/every_optimizer.h"

namespace passel::cuda {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The claim word of a block of shard 0, as the layout has it.
class ClaimsByHand {
 public:
  explicit ClaimsByHand(int fd)
      : memory_(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) {
    EXPECT_NE(memory_, MAP_FAILED);
  }
  ~ClaimsByHand() { ::munmap(memory_, kBytes); }
  std::uint64_t& operator[](std::size_t block) {
    return *reinterpret_cast<std::uint64_t*>(static_cast<char*>(memory_) + 4096 + 128 * block);
  }

 private:
  static constexpr std::size_t kBytes = 8192;
  void* memory_;
};

TEST(MappedArenaTest, EngineReadsValuesAndLeavesGradientsThere) {
  for (const Placement placement :
       {Placement::kOneShard, Placement::kRoundRobin, Placement::kSplit}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      StepWorld world({7, 5, 3}, 6, placement, seed);
      FakeDeviceOptions fake;
      fake.seed = seed;
      const auto worker = Creator(Shape(world), fake);
      worker->Write(world);
      const auto engine = worker->Engine(world);
      ASSERT_NE(engine, nullptr);
      EXPECT_THAT(engine->Describe(), HasSubstr("in the memory of the GPU"));
      const auto first = world.RandomBatch(), second = world.RandomBatch();
      ASSERT_TRUE(engine->Start(first, 0).ok());
      ASSERT_TRUE(engine->Start(second, 1).ok());
      Outcome outcomes[] = {FinishStep(*engine, world, 0), FinishStep(*engine, world, 1)};
      // Read now: the second step must not have touched the first one's.
      for (int slot = 0; slot < 2; ++slot) {
        outcomes[slot].gradient = worker->Gradient(world, slot);
        ExpectNear(world, outcomes[slot], world.Reference(slot == 0 ? first : second));
      }
      // What is not finite is shown to the host, which finds out where.
      const float nan = kNan;
      ASSERT_TRUE(
          worker->device.CopyIn(const_cast<float*>(worker->arena->values(0)), &nan, sizeof nan)
              .ok());
      EXPECT_FALSE(RunStep(*engine, world, first, 2).finite);
      bool shown = false;
      for (const auto& shard : world.Slot(2)) {
        for (const float x : shard) shown |= !std::isfinite(x);
      }
      EXPECT_TRUE(shown);
    }
  }
}

// Each rule as on the CPU, to the bit: slots in their places, several updates, blocks of more than
// one turn of the threads, the last one shorter and not whole quads.
void ExpectTheCpusUpdates(const OptimizerConfig& config, std::size_t floats, std::size_t block) {
  SCOPED_TRACE(testing::Message() << OptimizerName(config.kind) << ", " << floats << " floats");
  FakeDeviceOptions fake;
  fake.seed = floats;
  const auto worker = Creator(Shape({floats}, NumSlots(config), block), fake);
  DeviceArena::Push push;
  push.claim = Word(1, 0);
  push.first_block = (floats - 1) / block;
  const BothUpdated both = UpdateBoth(*worker->arena, config, floats, push);
  for (std::size_t a = 0; a < both.cpu.size(); ++a) {
    EXPECT_EQ(std::memcmp(both.device[a].data(), both.cpu[a].data(), floats * sizeof(float)), 0)
        << "array " << a;
  }
}

TEST(MappedArenaTest, PushAppliesEachOptimizerAsTheCpuDoes) {
  std::set<UpdateRule> rules;
  for (OptimizerConfig config : EveryOptimizer()) {
    config.learning_rate = 0.125;
    rules.insert(Prepare(config, 1).rule);
    for (const std::size_t floats : {1u, 3u, 4u, 112u, 117u}) {
      ExpectTheCpusUpdates(config, floats, 32);
    }
    ExpectTheCpusUpdates(config, 5125, 2048);
  }
  EXPECT_EQ(rules.size(), UpdateRules::kSize) << "every rule";
}

TEST(MappedArenaTest, BlockThatOthersHoldIsLeftAndThenDoneOnce) {
  constexpr std::size_t kFloats = 32 * 5;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    FakeDeviceOptions fake;
    fake.seed = seed;
    const auto worker = Creator(Shape({kFloats}, 0), fake);
    ClaimsByHand claims(worker->arena->fd());
    worker->SetGradient(0, kFloats, -1);
    const StepScalars scalars = Scalars(OptimizerKind::kSgd);
    DeviceArena::Push push = FirstPush(scalars);
    push.first_block = seed % 5;
    claims[1] = Word(4, 2);
    claims[3] = Word(7, 3);
    BlocksSwept pushed = worker->Apply(push);
    EXPECT_EQ(pushed.left, 2u);
    EXPECT_TRUE(pushed.holder == Word(4, 2) || pushed.holder == Word(7, 3));
    // Nobody is to be taken over: the same again.
    push.goes_on = true;
    EXPECT_EQ(worker->Apply(push).left, 2u);
    // Of two holders one is dead; a claim of another life of the same worker is not its.
    push.former = Word(7, 3);
    pushed = worker->Apply(push);
    EXPECT_EQ(pushed.left, 1u);
    EXPECT_EQ(pushed.taken_over, 1u);
    EXPECT_EQ(pushed.holder, Word(4, 2));
    push.former = Word(5, 2);
    EXPECT_EQ(worker->Apply(push).left, 1u);
    EXPECT_EQ(claims[1], Word(4, 2));
    claims[1] = 0;
    pushed = worker->Apply(push);
    EXPECT_EQ(pushed.left, 0u);
    EXPECT_EQ(pushed.taken_over, 0u);
    EXPECT_THAT(worker->Read(0, 0, kFloats), Each(1.0f));  // each block once
    for (std::size_t b = 0; b < 5; ++b) EXPECT_EQ(claims[b], 0u);
  }
}

// A kernel of the dead may still be at work in the MPS server.
TEST(MappedArenaTest, UnderMpsNothingIsTakenOver) {
  constexpr std::size_t kFloats = 32 * 5;
  FakeDeviceOptions fake;
  fake.mps = true;
  const auto worker = Creator(Shape({kFloats}, 0), fake);
  ClaimsByHand claims(worker->arena->fd());
  worker->SetGradient(0, kFloats, -1);
  const StepScalars scalars = Scalars(OptimizerKind::kSgd);
  DeviceArena::Push push = FirstPush(scalars);
  push.former = Word(7, 3);
  claims[3] = Word(7, 3);
  const BlocksSwept pushed = worker->Apply(push);
  EXPECT_EQ(pushed.left, 1u);
  EXPECT_EQ(pushed.taken_over, 0u);
  EXPECT_EQ(pushed.holder, Word(7, 3));
  EXPECT_EQ(claims[3], Word(7, 3));
}

// The blocks that a push has done stay done while another shard's push comes between its launches.
TEST(MappedArenaTest, PushThatGoesOnBehindAnotherShardsDoesNothingTwice) {
  constexpr std::size_t kFloats = 32 * 3;
  const auto worker = Creator(Shape({kFloats, kFloats}, 0), FakeDeviceOptions{});
  ClaimsByHand claims(worker->arena->fd());
  worker->SetGradient(0, kFloats, -1);
  worker->SetGradient(1, kFloats, -1);
  const StepScalars scalars = Scalars(OptimizerKind::kSgd);
  DeviceArena::Push push = FirstPush(scalars);
  claims[1] = Word(4, 2);
  EXPECT_EQ(worker->Apply(push).left, 1u);
  DeviceArena::Push other = push;
  other.shard = 1;
  worker->Apply(other);
  worker->Apply(other);
  claims[1] = 0;
  push.goes_on = true;
  EXPECT_EQ(worker->Apply(push).left, 0u);
  EXPECT_THAT(worker->Read(0, 0, kFloats), Each(1.0f));
  EXPECT_THAT(worker->Read(1, 0, kFloats), Each(2.0f));
}

TEST(MappedArenaTest, NothingIsLostBetweenFourProcesses) {
  ExpectNothingIsLost(
      Shape({32 * 8, 64}, 0),
      [](const DeviceArenaShape& shape, Worker* first, std::size_t) {
        return first == nullptr ? Creator(shape, OnAThread())
                                : Importer(first->arena->fd(), shape, OnAThread());
      },
      [](Worker& worker) { EXPECT_EQ(worker.device.kernels_at(Scope::kSystem), 0u); });
}

TEST(MappedArenaTest, MemoryOutlivesItsCreator) {
  const DeviceArenaShape shape = Shape({64}, 0);
  auto creator = Creator(shape, OnAThread());
  const std::vector<float> values(64, 2.5f);
  ASSERT_TRUE(creator->arena->Write(0, 0, values.data()).ok());
  FileDescriptor kept(::dup(creator->arena->fd()));
  creator.reset();
  EXPECT_EQ(Importer(kept.get(), shape, OnAThread())->Read(0, 0, 64), values);
}

TEST(MappedArenaTest, WhatIsNotThisArenaIsRefusedInOneSentence) {
  const DeviceArenaShape shape = Shape({64}, 1);
  const auto creator = Creator(shape, OnAThread());
  const auto refusal = [&](const DeviceArenaShape& other) {
    FakeDevice device(OnAThread());
    const auto arena = ImportMappedArena(device, creator->arena->fd(), other);
    EXPECT_FALSE(arena.ok());
    EXPECT_EQ(device.memories_alive(), 0u);
    return arena.status().message();
  };
  DeviceArenaShape other = shape;
  other.id = 78;
  EXPECT_THAT(refusal(other), HasSubstr("is number 000000000000004d, the job's is"));
  other = shape;
  other.plan_hash = 1;
  EXPECT_THAT(refusal(other), HasSubstr("start all tasks with the same flags"));
  other = shape;
  other.slots = 2;
  EXPECT_THAT(refusal(other), HasSubstr("bytes"));
  FakeDevice device(OnAThread());
  FileDescriptor empty;
  std::size_t bytes = 0;
  {
    const auto twin = Creator(shape, OnAThread());
    bytes = static_cast<std::size_t>(::lseek(twin->arena->fd(), 0, SEEK_END));
  }
  auto memory = device.CreateShared(bytes, &empty);
  ASSERT_TRUE(memory.ok());
  EXPECT_THAT(ImportMappedArena(device, empty.get(), shape).status().message(),
              HasSubstr("is none"));
}

TEST(MappedArenaTest, DeviceThatHangsOrFailsIsLostForGood) {
  FakeDeviceOptions fake = OnAThread();
  fake.hang_at = 0;
  FakeDevice device(fake);
  auto arena = CreateMappedArena(device, Shape({64}, 0));
  ASSERT_TRUE(arena.ok());
  const StepScalars scalars = Scalars(OptimizerKind::kSgd);
  const DeviceArena::Push push = FirstPush(scalars);
  const auto pushed = (*arena)->Apply(push, Deadline::After(std::chrono::milliseconds(50)));
  EXPECT_EQ(pushed.status().code(), Code::kUnavailable);
  EXPECT_THAT(pushed.status().message(), HasSubstr("push 1 of this worker is not done"));
  EXPECT_EQ((*arena)->Apply(push, Soon()).status().code(), Code::kUnavailable);
  // What the device may still write to is left to it.
  arena->reset();
  EXPECT_THAT(device.violations(), IsEmpty());
  EXPECT_GT(device.memories_alive(), 0u);
}

}  // namespace
}  // namespace passel::cuda

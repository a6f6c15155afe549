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
      std::vector<std::size_t> floats;
      for (const auto& values : world.options.memory.shard_values) floats.push_back(values.size());
      DeviceArenaShape shape = Shape(floats, 0, 16);
      shape.gradient_slots = 3;
      FakeDeviceOptions fake;
      fake.seed = seed;
      const auto worker = Creator(shape, fake);
      for (std::size_t s = 0; s < floats.size(); ++s) {
        ASSERT_TRUE(worker->arena->Write(static_cast<int>(s), 0, world.values(s).data()).ok());
      }
      world.options.arena = worker->arena.get();
      DeviceStepEngineHooks hooks;
      hooks.looks_per_health = 1;
      auto engine = CreateDeviceStepEngine(worker->device, world.options, hooks);
      ASSERT_TRUE(engine.ok()) << engine.status().message();
      EXPECT_THAT((*engine)->Describe(), HasSubstr("in the memory of the GPU"));
      const auto first = world.RandomBatch(), second = world.RandomBatch();
      ASSERT_TRUE((*engine)->Start(first, 0).ok());
      ASSERT_TRUE((*engine)->Start(second, 1).ok());
      for (int slot = 0; slot < 2; ++slot) {
        Outcome outcome = FinishStep(**engine, world, slot);
        if (slot == 0) continue;  // read below: the second step must not have touched it
        for (int k = 0; k < 2; ++k) {
          for (std::size_t s = 0; s < floats.size(); ++s) {
            outcome.gradient[s].resize(floats[s]);
            ASSERT_TRUE(
                worker->arena
                    ->ReadGradient(static_cast<int>(s), k, outcome.gradient[s].data(), Soon())
                    .ok());
          }
          const auto wanted = world.Reference(k == 0 ? first : second);
          const auto got = world.Variables(outcome.gradient);
          for (std::size_t v = 0; v < got.size(); ++v) {
            EXPECT_LE(RelativeError(got[v], wanted.gradients[v]), 1e-5) << "variable " << v;
          }
        }
      }
      // What is not finite is shown to the host, which finds out where.
      const float nan = kNan;
      ASSERT_TRUE(
          worker->device.CopyIn(const_cast<float*>(worker->arena->values(0)), &nan, sizeof nan)
              .ok());
      EXPECT_FALSE(RunStep(**engine, world, first, 2).finite);
      bool shown = false;
      for (const auto& shard : world.Slot(2)) {
        for (const float x : shard) shown |= !std::isfinite(x);
      }
      EXPECT_TRUE(shown);
      engine->reset();
    }
  }
}

// Each rule as on the CPU, to the bit: slots in their places, several updates, blocks of more than
// one turn of the threads, the last one shorter and not whole quads.
void ExpectTheCpusUpdates(const OptimizerConfig& config, std::size_t floats, std::size_t block) {
  SCOPED_TRACE(testing::Message() << OptimizerName(config.kind) << ", " << floats << " floats");
  const int slots = NumSlots(config);
  FakeDeviceOptions fake;
  fake.seed = floats;
  const auto worker = Creator(Shape({floats}, slots, block), fake);
  Random random(9);
  std::vector<std::vector<float>> arrays(static_cast<std::size_t>(slots) + 1);
  for (std::size_t a = 0; a < arrays.size(); ++a) {
    for (std::size_t i = 0; i < floats; ++i) {
      arrays[a].push_back(
          static_cast<float>(a == 0 ? random.Normal() : 0.5 + 0.01 * static_cast<double>(i % 100)));
    }
    ASSERT_TRUE(worker->arena->Write(0, static_cast<int>(a), arrays[a].data()).ok());
  }
  float* slot_pointers[kMaxSlots] = {};
  for (int s = 0; s < slots; ++s) {
    slot_pointers[s] = arrays[static_cast<std::size_t>(s) + 1].data();
  }
  for (int step = 1; step <= 3; ++step) {
    std::vector<float> gradient;
    for (std::size_t i = 0; i < floats; ++i) {
      gradient.push_back(static_cast<float>(random.Normal()));
    }
    ASSERT_TRUE(worker->arena->WriteGradient(0, 0, gradient.data()).ok());
    const StepScalars scalars = Prepare(config, step);
    DeviceArena::Push push;
    push.scalars = &scalars;
    push.claim = Word(1, 0);
    push.first_block = (floats - 1) / block;
    const auto pushed = worker->arena->Apply(push, Soon());
    ASSERT_TRUE(pushed.ok()) << pushed.status().message();
    EXPECT_EQ(pushed->left, 0u);
    Apply(scalars, arrays[0].data(), slot_pointers, gradient.data(), floats);
    for (std::size_t a = 0; a < arrays.size(); ++a) {
      const std::vector<float> got = worker->Read(0, static_cast<int>(a), floats);
      ASSERT_EQ(std::memcmp(got.data(), arrays[a].data(), floats * sizeof(float)), 0)
          << "update " << step << ", array " << a;
    }
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
    DeviceArena::Push push;
    push.scalars = &scalars;
    push.claim = Word(1, 0);
    push.first_block = seed % 5;
    claims[1] = Word(4, 2);
    claims[3] = Word(7, 3);
    auto pushed = worker->arena->Apply(push, Soon());
    ASSERT_TRUE(pushed.ok());
    EXPECT_EQ(pushed->left, 2u);
    EXPECT_TRUE(pushed->holder == Word(4, 2) || pushed->holder == Word(7, 3));
    // Nobody is to be taken over: the same again.
    push.goes_on = true;
    pushed = worker->arena->Apply(push, Soon());
    ASSERT_TRUE(pushed.ok());
    EXPECT_EQ(pushed->left, 2u);
    // Of two holders one is dead; a claim of another life of the same worker is not its.
    push.former = Word(7, 3);
    pushed = worker->arena->Apply(push, Soon());
    ASSERT_TRUE(pushed.ok());
    EXPECT_EQ(pushed->left, 1u);
    EXPECT_EQ(pushed->taken_over, 1u);
    EXPECT_EQ(pushed->holder, Word(4, 2));
    push.former = Word(5, 2);
    pushed = worker->arena->Apply(push, Soon());
    ASSERT_TRUE(pushed.ok());
    EXPECT_EQ(pushed->left, 1u);
    EXPECT_EQ(claims[1], Word(4, 2));
    claims[1] = 0;
    pushed = worker->arena->Apply(push, Soon());
    ASSERT_TRUE(pushed.ok());
    EXPECT_EQ(pushed->left, 0u);
    EXPECT_EQ(pushed->taken_over, 0u);
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
  DeviceArena::Push push;
  push.scalars = &scalars;
  push.claim = Word(1, 0);
  push.former = Word(7, 3);
  claims[3] = Word(7, 3);
  const auto pushed = worker->arena->Apply(push, Soon());
  ASSERT_TRUE(pushed.ok());
  EXPECT_EQ(pushed->left, 1u);
  EXPECT_EQ(pushed->taken_over, 0u);
  EXPECT_EQ(pushed->holder, Word(7, 3));
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
  DeviceArena::Push push;
  push.scalars = &scalars;
  push.claim = Word(1, 0);
  claims[1] = Word(4, 2);
  auto pushed = worker->arena->Apply(push, Soon());
  ASSERT_TRUE(pushed.ok());
  EXPECT_EQ(pushed->left, 1u);
  DeviceArena::Push other = push;
  other.shard = 1;
  ASSERT_TRUE(worker->arena->Apply(other, Soon()).ok());
  ASSERT_TRUE(worker->arena->Apply(other, Soon()).ok());
  claims[1] = 0;
  push.goes_on = true;
  pushed = worker->arena->Apply(push, Soon());
  ASSERT_TRUE(pushed.ok());
  EXPECT_EQ(pushed->left, 0u);
  EXPECT_THAT(worker->Read(0, 0, kFloats), Each(1.0f));
  EXPECT_THAT(worker->Read(1, 0, kFloats), Each(2.0f));
}

// Gradients of -1 count in the values; momentum of 1 counts in the slot and sums that up in the
// value, so that one of the two that is lost, or halves of two updates, would show.
TEST(MappedArenaTest, NothingIsLostBetweenFourProcesses) {
  constexpr std::size_t kFloats = 32 * 8, kPushes = 60;
  constexpr int kWorkers = 4;
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kMomentum}) {
    for (const bool claims : {true, false}) {
      if (!claims && kind != OptimizerKind::kSgd) continue;
      const DeviceArenaShape shape = Shape({kFloats, 64}, kind == OptimizerKind::kSgd ? 0 : 1);
      std::vector<std::unique_ptr<Worker>> workers;
      workers.push_back(Creator(shape, OnAThread()));
      while (workers.size() < kWorkers) {
        workers.push_back(Importer(workers[0]->arena->fd(), shape, OnAThread()));
      }
      EXPECT_EQ(PushAtOnce(workers, shape, kind, claims, kPushes), 0);
      constexpr float kTotal = kWorkers * kPushes;
      const float sum = kind == OptimizerKind::kSgd ? kTotal : kTotal * (kTotal + 1) / 2;
      EXPECT_THAT(workers[1]->Read(0, 0, kFloats), Each(sum));
      EXPECT_THAT(workers[2]->Read(1, 0, 64), Each(sum));
      if (kind == OptimizerKind::kMomentum) {
        EXPECT_THAT(workers[3]->Read(0, 1, kFloats), Each(-kTotal));
      }
    }
  }
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
  DeviceArena::Push push;
  push.scalars = &scalars;
  push.claim = Word(1, 0);
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

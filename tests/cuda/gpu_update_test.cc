// Steps that make their update in GPU memory themselves, on a GPU or on the emulated one: against
// double precision; and processes that count by them. Label gpu, see gpu_step_test.cc.

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "compute/accelerator_loader.h"
#include "cuda/gpu_child.h"
#include "cuda/gpu_fixture.h"
#include "cuda/step_world.h"

namespace passel::cuda {
namespace {

class GpuUpdate : public GpuFixture {
 protected:
  // An arena with the world's values, and an engine on it.
  void Create(StepWorld& world) {
    engine_.reset();
    CreateArena(world);
    ASSERT_FALSE(HasFatalFailure());
    world.options.arena = arena_.get();
    world.options.updates = true;
    auto engine = accelerator_->CreateStepEngine(world.options);
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = std::move(*engine);
    ASSERT_TRUE(engine_->can_update());
  }
  std::vector<std::vector<float>> ReadAll(const StepWorld& world) {
    std::vector<std::vector<float>> values;
    for (const auto& shard : world.options.memory.shard_values) {
      values.push_back(Read(static_cast<int>(values.size()), 0, shard.size()));
    }
    return values;
  }

  std::unique_ptr<StepEngine> engine_;
};

// What is added is compared to -rate times the reference's gradient, but for the rounding of the
// sums: so the values are small beside it.
TEST_F(GpuUpdate, StepsAddTheGradientOfDoublePrecision) {
  constexpr double kRate = 64;
  for (const Placement placement :
       {Placement::kOneShard, Placement::kRoundRobin, Placement::kSplit}) {
    for (const auto& [widths, batch] :
         std::vector<std::pair<std::vector<std::size_t>, std::size_t>>{
             {{33, 20, 10}, 7}, {{784, 100, 10}, Small() ? 8UL : 100UL}, {{64, 12, 8, 4}, 40}}) {
      StepWorld world(widths, batch, placement, 31, 2);
      Create(world);
      ASSERT_FALSE(HasFatalFailure());
      for (int step = 0; step < 3; ++step) {
        world.RandomValues();
        Write(world);
        const auto indices = world.RandomBatch();
        const ReferenceResult wanted = world.Reference(indices);
        const auto before = world.Variables();
        ASSERT_TRUE(engine_->StartUpdate(indices, step % 2, static_cast<float>(kRate)).ok());
        bool finite = false;
        const auto result = engine_->Finish(Soon(), &finite);
        ASSERT_TRUE(result.ok()) << result.status().ToString();
        EXPECT_TRUE(finite);
        EXPECT_EQ(engine_->left_out().elements, 0u);
        EXPECT_NEAR(result->loss, wanted.loss, 1e-5 * std::abs(wanted.loss) + 1e-6);
        const auto after = world.Variables(ReadAll(world));
        for (std::size_t v = 0; v < after.size(); ++v) {
          std::vector<double> got, expected;
          for (std::size_t i = 0; i < after[v].size(); ++i) {
            got.push_back(after[v][i] - before[v][i]);
            expected.push_back(-kRate * wanted.gradients[v][i]);
          }
          EXPECT_LE(RelativeError(got, expected), 1e-5) << "variable " << v;
        }
      }
    }
  }
}

TEST_F(GpuUpdate, WhatIsNotFiniteIsNotAdded) {
  StepWorld world({33, 20, 10}, 7, Placement::kOneShard, 32, 1);
  Create(world);
  ASSERT_FALSE(HasFatalFailure());
  world.values(0)[5] = kNan;  // one weight: the loss is not finite, so nothing is added
  Write(world);
  ASSERT_TRUE(engine_->StartUpdate(world.RandomBatch(), 0, 1.f).ok());
  bool finite = true;
  ASSERT_TRUE(engine_->Finish(Soon(), &finite).ok());
  EXPECT_FALSE(finite);
  const auto after = ReadAll(world);
  for (std::size_t i = 0; i < after[0].size(); ++i) {
    if (i != 5) {
      ASSERT_EQ(after[0][i], world.values(0)[i]) << i;
    }
  }
}

// Prints, for tools/gpu_check: what a step with its update in it takes, by how many are in flight.
// (A job has one: steps behind each other on one stream read what those before them added, so more
// of them would make nothing staler.)
TEST_F(GpuUpdate, Speed) {
  StepWorld world = MnistWorld(Placement::kOneShard, 15, 3, true);
  Create(world);
  ASSERT_FALSE(HasFatalFailure());
  const auto indices = world.RandomBatch();
  for (int in_flight = 1; in_flight <= 3; ++in_flight) {
    int started = 0;
    for (; started < in_flight; ++started) {
      ASSERT_TRUE(engine_->StartUpdate(indices, started % 3, 1e-6f).ok());
    }
    bool finite = false;
    const double us = Microseconds([&] {
      ASSERT_TRUE(engine_->Finish(Soon(), &finite).ok());
      ASSERT_TRUE(engine_->StartUpdate(indices, started++ % 3, 1e-6f).ok());
    });
    ASSERT_FALSE(HasFatalFailure());
    for (int i = 0; i < in_flight; ++i) ASSERT_TRUE(engine_->Finish(Soon(), &finite).ok());
    std::printf(
        "RESULT step with a fused update in GPU memory, graph, SGD, %d in flight: %.2f us, %.0f "
        "steps/s\n",
        in_flight, us, 1e6 / us);
  }
}

// --- Counting. The network is so sure of the wrong class that its gradient is +1 for each weight
// of that class and -1 for each of the right one, exactly, whatever the others add meanwhile.

constexpr std::size_t kInputs = 300, kClasses = 2, kBatch = 16;
constexpr std::size_t kBiasAt = kInputs * kClasses / 16 * 16 + 16;
constexpr std::size_t kNetworkFloats = kBiasAt + 16;
constexpr float kFirst = 1 << 20;
constexpr int kMostUpdates = 1 << 19;

// Of column 0 (the class that the network believes in) and 1 (the right one); 0 for padding.
float FirstValue(std::size_t i) {
  const bool weight = i < kInputs * kClasses, bias = i >= kBiasAt && i < kBiasAt + kClasses;
  return !weight && !bias ? 0 : i % kClasses == 0 ? kFirst : -kFirst;
}

DeviceArenaShape CountingShape() {
  DeviceArenaShape shape;
  shape.shards = {{kNetworkFloats, 64}};
  shape.gradient_slots = 2;
  shape.id = 815;
  shape.plan_hash = 1;
  return shape;
}

// Steps that count, two in flight.
class Counter {
 public:
  Counter(Accelerator& gpu, DeviceArena& arena)
      : white_(kBatch * kInputs, 255),
        labels_(kBatch, 1),
        host_(3, std::vector<float>(kNetworkFloats)) {
    StepEngineOptions options;
    options.network = {{{kInputs, kClasses}}, /*clip=*/false, /*mean=*/true};
    options.batch_size = kBatch;
    options.train = {white_.data(), labels_.data(), kBatch};
    options.memory.variables = {{{0, 0, 0, kInputs}}, {{0, kBiasAt, 0, kClasses}}};
    options.memory.shard_values = {host_[2]};
    options.memory.gradient_slots = {{host_[0]}, {host_[1]}};
    options.arena = &arena;
    options.updates = true;
    auto engine = gpu.CreateStepEngine(options);
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    if (engine.ok()) engine_ = std::move(*engine);
    for (std::uint32_t i = 0; i < kBatch; ++i) batch_.push_back(i);
  }
  // `count` updates of 1; 0: until the deadline.
  void Count(int count, Deadline deadline) {
    ASSERT_NE(engine_, nullptr);
    int started = 0;
    for (int finished = 0; count == 0 ? !deadline.Expired() : finished < count; ++finished) {
      for (; started < finished + 2 && (count == 0 || started < count); ++started) {
        ASSERT_TRUE(engine_->StartUpdate(batch_, started % 2, 1.f).ok());
      }
      bool finite = false;
      const auto result = engine_->Finish(deadline, &finite);
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      ASSERT_TRUE(finite);
    }
  }

 private:
  const std::vector<std::uint8_t> white_, labels_;
  std::vector<std::vector<float>> host_;
  std::vector<std::uint32_t> batch_;
  std::unique_ptr<StepEngine> engine_;
};

class GpuUpdateCount : public GpuFixture {
 protected:
  void Create() {
    CreateArena(CountingShape());
    ASSERT_FALSE(HasFatalFailure());
    std::vector<float> values;
    for (std::size_t i = 0; i < kNetworkFloats; ++i) values.push_back(FirstValue(i));
    ASSERT_TRUE(arena_->Write(0, 0, values.data()).ok());
  }
  // How often each value was updated; padding never was.
  std::vector<double> Counts() {
    const std::vector<float> values = Read(0, 0, kNetworkFloats);
    std::vector<double> counts;
    for (std::size_t i = 0; i < kNetworkFloats; ++i) {
      const double difference = static_cast<double>(FirstValue(i)) - static_cast<double>(values[i]);
      if (FirstValue(i) == 0) {
        EXPECT_EQ(difference, 0) << "padding " << i;
      } else {
        counts.push_back(FirstValue(i) > 0 ? difference : -difference);
      }
    }
    return counts;
  }
  pid_t Spawn(int updates) {
    ::fcntl(arena_->fd(), F_SETFD, 0);
    return SpawnTests("GpuUpdateCountChild.Counts",
                      {"PASSEL_GPU_UPDATE_CHILD=" + std::to_string(arena_->fd()) + " " +
                       std::to_string(updates)});
  }
};

TEST_F(GpuUpdateCount, IsExactBetweenTwoAndFourProcesses) {
  const int updates = Small() ? 60 : 2000;
  for (const int processes : {2, 4}) {
    Create();
    ASSERT_FALSE(HasFatalFailure());
    std::vector<pid_t> children;
    for (int w = 0; w < processes; ++w) children.push_back(Spawn(updates));
    for (const pid_t child : children) EXPECT_EQ(AwaitChild(child), 0);
    const std::vector<double> counts = Counts();
    EXPECT_EQ(std::count(counts.begin(), counts.end(), processes * updates),
              static_cast<std::ptrdiff_t>(counts.size()))
        << "the first is " << counts[0] << ", not " << processes * updates;
  }
}

// A killed process leaves whole additions, and at most the two steps that it had under way in part.
TEST_F(GpuUpdateCount, KilledProcessesLeaveWholeAdditions) {
  const int kills = Small() ? 4 : 20;
  Create();
  ASSERT_FALSE(HasFatalFailure());
  Counter mine(*accelerator_, *arena_);
  int own = 0;
  for (int kill = 0; kill < kills; ++kill) {
    const pid_t child = Spawn(0);
    const double before = Counts()[0];
    AwaitTrue([&] { return Counts()[0] >= before + 3; }, "the process counts");
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_NE(AwaitChild(child), -1);
    mine.Count(5, Deadline::After(kChildLimit));
    ASSERT_FALSE(HasFatalFailure());
    own += 5;
    const std::vector<double> counts = Counts();
    const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    for (const double c : counts) ASSERT_EQ(c, std::floor(c));
    EXPECT_GE(*least, own);
    EXPECT_LE(*most - *least, 2 * (kill + 1));
    ASSERT_LE(*most, kMostUpdates);
  }
}

// Not a test of its own: what Spawn() runs.
TEST(GpuUpdateCountChild, Counts) {
  const char* const description = std::getenv("PASSEL_GPU_UPDATE_CHILD");
  if (description == nullptr) GTEST_SKIP() << "run by the tests before it, in processes of theirs";
  int fd = -1, updates = 0;
  ASSERT_EQ(std::sscanf(description, "%d %d", &fd, &updates), 2);
  const FileDescriptor owner(fd);
  auto opened = OpenAccelerator({});
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  auto arena = (*opened)->ImportArena(fd, CountingShape());
  ASSERT_TRUE(arena.ok()) << arena.status().ToString();
  Counter(**opened, **arena).Count(updates, Deadline::After(kChildLimit));
}

}  // namespace
}  // namespace passel::cuda

// The arena in GPU memory between processes, on a GPU or on the emulated one: 2 and 4 of them count
// in the same values, and some are killed while they do; the same on two GPUs with NVLink, whose
// UUIDs PASSEL_GPU_PEERS names. Label gpu, see gpu_step_test.cc.

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "compute/accelerator_loader.h"
#include "cuda/gpu_child.h"
#include "cuda/gpu_fixture.h"
#include "optim/update_kernels.h"

namespace passel::cuda {
namespace {

constexpr std::size_t kBlock = 2048, kBlocks = 39;  // MNIST's network, nearly
constexpr std::size_t kFloats = kBlock * kBlocks - 64;

std::uint64_t ClaimOf(std::uint32_t epoch, int worker) {
  return std::uint64_t{epoch} << 16 | static_cast<std::uint64_t>(worker + 1);
}

DeviceArenaShape Shape(int slots) {
  DeviceArenaShape shape;
  shape.shards = {{kFloats, kBlock}};
  shape.slots = slots;
  shape.id = 4711;
  shape.plan_hash = 1;
  return shape;
}

// Plain SGD counts in the values. Momentum of 1 counts in the slot, and sums that up in the value:
// an update that is lost, or halves of two, would show.
StepScalars Counting(bool momentum) {
  OptimizerConfig config;
  config.kind = momentum ? OptimizerKind::kMomentum : OptimizerKind::kSgd;
  config.learning_rate = 1;
  config.momentum = 1;
  return Prepare(config, 1);
}

// Adds 1 to what is counted.
Status PushOnce(DeviceArena& arena, const StepScalars& scalars, bool claims, std::uint64_t claim,
                std::uint64_t former, std::size_t first_block, Deadline deadline) {
  DeviceArena::Push push;
  push.scalars = &scalars;
  push.claims = claims;
  push.claim = claim;
  push.former = former;
  push.first_block = first_block;
  for (;;) {
    PASSEL_ASSIGN_OR_RETURN(const BlocksSwept pushed, arena.Apply(push, deadline));
    if (pushed.left == 0) return {};
    if (deadline.Expired()) return DeadlineExceeded("blocks stay held");
    push.goes_on = true;
    std::this_thread::yield();
  }
}

class GpuArena : public GpuFixture {
 protected:
  // The GPUs that a worker sees, its own first; empty: as this process.
  virtual std::string Visible(int /*worker*/) const { return ""; }
  void Create(int slots) {
    DeviceArenaShape shape = Shape(slots);
    shape.several_gpus = !Visible(1).empty();
    CreateArena(shape);
  }
  std::vector<float> Read(int array) { return GpuFixture::Read(0, array, kFloats); }

  // Another process of this program, which counts `pushes` times; 0: until it is killed.
  pid_t Spawn(int worker, bool momentum, bool claims, int pushes) {
    const std::string description = std::to_string(arena_->fd()) + " " + std::to_string(worker) +
                                    " " + (momentum ? "1" : "0") + " " + (claims ? "1 " : "0 ") +
                                    std::to_string(pushes);
    ::fcntl(arena_->fd(), F_SETFD, 0);
    std::vector<std::string> variables = {"PASSEL_GPU_ARENA_CHILD=" + description};
    if (const std::string visible = Visible(worker); !visible.empty()) {
      variables.push_back("CUDA_VISIBLE_DEVICES=" + visible);
      variables.push_back("PASSEL_GPU_ARENA_HOME=" + accelerator_->info().uuid);
    }
    return SpawnTests("GpuArenaChild.Counts", variables);
  }

  void ExpectExactCounts(int processes) {
    const int pushes = Small() ? 40 : 1000;
    for (const auto& [momentum, claims] :
         {std::pair{false, false}, std::pair{false, true}, std::pair{true, true}}) {
      SCOPED_TRACE(::testing::Message()
                   << processes << " processes, momentum " << momentum << ", claims " << claims);
      Create(momentum ? 1 : 0);
      ASSERT_FALSE(HasFatalFailure());
      std::vector<pid_t> children;
      for (int w = 0; w < processes; ++w) children.push_back(Spawn(w, momentum, claims, pushes));
      for (const pid_t child : children) EXPECT_EQ(AwaitChild(child), 0);
      // Sums of up to 2^24 are exact in float32.
      const float total = static_cast<float>(processes * pushes);
      const float sum = momentum ? total * (total + 1) / 2 : total;
      const std::vector<float> values = Read(0);
      std::size_t wrong = 0;
      for (const float v : values) wrong += v != sum ? 1 : 0;
      EXPECT_EQ(wrong, 0u) << "the first is " << values[0] << ", not " << sum;
      if (momentum) {
        for (const float a : Read(1)) ASSERT_EQ(a, -total);
      }
      arena_.reset();
    }
  }

  // Whatever a dead process held can be taken over, and the others go on.
  void KillWhoCounts(const std::vector<int>& workers) {
    Create(0);
    ASSERT_FALSE(HasFatalFailure());
    const std::vector<float> minus_one(kFloats, -1);
    ASSERT_TRUE(arena_->WriteGradient(0, 0, minus_one.data()).ok());
    const StepScalars scalars = Counting(false);
    for (std::size_t kill = 0; kill < (Small() ? 3u : 20u); ++kill) {
      const int worker = workers[kill % workers.size()];
      const pid_t child = Spawn(worker, false, true, 0);
      const float before = Read(0)[0];
      AwaitTrue([&] { return Read(0)[0] >= before + 3; }, "the process counts");
      ASSERT_EQ(::kill(child, SIGKILL), 0);
      ASSERT_NE(AwaitChild(child), -1);
      const Status pushed = PushOnce(*arena_, scalars, true, ClaimOf(1, 0), ClaimOf(1, worker), 0,
                                     Deadline::After(kChildLimit));
      ASSERT_TRUE(pushed.ok()) << pushed.ToString();
      for (const float v : Read(0)) {
        // Whole updates of each float: a killed process leaves some floats without its last.
        ASSERT_EQ(v, std::floor(v));
      }
    }
  }
};

TEST_F(GpuArena, CountingIsExactBetweenTwoAndFourProcesses) {
  ExpectExactCounts(2);
  ExpectExactCounts(4);
}

TEST_F(GpuArena, KilledProcessLeavesNothingThatCannotBeTakenOver) { KillWhoCounts({1, 2, 3}); }

// On two GPUs, with the arena in the memory of the first.
class GpuArenaPeers : public GpuArena {
 protected:
  void SetUp() override {
    const char* const named = std::getenv("PASSEL_GPU_PEERS");
    if (named == nullptr) {
      GTEST_SKIP() << "it takes two GPUs with NVLink: PASSEL_GPU_PEERS=UUID,UUID names them";
    }
    const std::string both = named;
    const std::size_t comma = both.find(',');
    ASSERT_NE(comma, std::string::npos) << both;
    home_ = both.substr(0, comma);
    peer_ = both.substr(comma + 1);
    AcceleratorOptions options;
    options.uuid = home_;
    auto opened = OpenAccelerator(options);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    accelerator_ = std::move(opened).value();
  }
  // Every other one computes on the other GPU.
  std::string Visible(int worker) const override {
    return worker % 2 == 0 ? home_ : peer_ + "," + home_;
  }
  std::string home_, peer_;
};

TEST_F(GpuArenaPeers, CountingIsExactBetweenTwoGpus) { ExpectExactCounts(4); }

TEST_F(GpuArenaPeers, KilledProcessOfTheOtherGpuLeavesNothingThatCannotBeTakenOver) {
  KillWhoCounts({1});
}

// Not a test of its own: what Spawn() runs.
TEST(GpuArenaChild, Counts) {
  const char* const description = std::getenv("PASSEL_GPU_ARENA_CHILD");
  if (description == nullptr) GTEST_SKIP() << "run by the tests before it, in processes of theirs";
  int fd = -1, worker = 0, momentum = 0, claims = 0, pushes = 0;
  ASSERT_EQ(std::sscanf(description, "%d %d %d %d %d", &fd, &worker, &momentum, &claims, &pushes),
            5);
  const FileDescriptor owner(fd);
  auto opened = OpenAccelerator({});
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  DeviceArenaShape shape = Shape(momentum);
  if (const char* const home = std::getenv("PASSEL_GPU_ARENA_HOME")) {
    shape.several_gpus = true;
    shape.home = home;
  }
  auto arena = (*opened)->ImportArena(fd, shape);
  ASSERT_TRUE(arena.ok()) << arena.status().ToString();
  const std::vector<float> minus_one(kFloats, -1);
  ASSERT_TRUE((*arena)->WriteGradient(0, 0, minus_one.data()).ok());
  const StepScalars scalars = Counting(momentum != 0);
  const Deadline deadline = Deadline::After(kChildLimit);
  for (int i = 0; pushes == 0 ? !deadline.Expired() : i < pushes; ++i) {
    const Status pushed =
        PushOnce(**arena, scalars, claims != 0, ClaimOf(1, worker), 0,
                 static_cast<std::size_t>(i * 7 + worker * 11) % kBlocks, deadline);
    ASSERT_TRUE(pushed.ok()) << pushed.ToString();
  }
}

}  // namespace
}  // namespace passel::cuda

// An arena in device memory and workers on other devices: they copy its values, and push over.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "cuda/arena_workers.h"
#include "cuda/far_memory.h"

namespace passel::cuda {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kHome = "GPU-aaaa";
constexpr const char* kPeer = "GPU-bbbb";

DeviceArenaShape Shared(DeviceArenaShape shape) {
  shape.several_gpus = true;
  shape.home = kHome;
  return shape;
}
FakeDeviceOptions On(const char* uuid, FakeDeviceOptions options) {
  options.uuid = uuid;
  return options;
}
std::vector<float> Counted(std::size_t count, float first) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i);
  return values;
}

TEST(PeerArenaTest, PeerReadsWhatTheOthersWrote) {
  const DeviceArenaShape shape = Shared(Shape({48, 16}, 1));
  const auto home = Creator(shape, On(kHome, OnAThread()));
  for (int shard = 0; shard < 2; ++shard) {
    for (int array = 0; array < 2; ++array) {
      const auto values =
          Counted(shard == 0 ? 48 : 16, static_cast<float>(100 * shard + 50 * array));
      ASSERT_TRUE(home->arena->Write(shard, array, values.data()).ok());
    }
  }
  for (const bool adversarial : {false, true}) {
    FakeDeviceOptions fake = On(kPeer, OnAThread());
    fake.adversarial = adversarial;
    const auto peer = Importer(home->arena->fd(), shape, fake);
    EXPECT_TRUE(peer->arena->remote());
    EXPECT_FALSE(home->arena->remote());
    EXPECT_EQ(peer->Read(0, 0, 48), Counted(48, 0));
    EXPECT_EQ(peer->Read(0, 1, 48), Counted(48, 50));
    EXPECT_EQ(peer->Read(1, 1, 16), Counted(16, 150));
    EXPECT_EQ(peer->Read(1, 1, 16), Counted(16, 150));
  }
}

// Steps on another device see the values as they are when the step runs, in copies of their own.
TEST(PeerArenaTest, EngineOnAPeerComputesOnTheValuesOfTheHome) {
  for (const Placement placement :
       {Placement::kOneShard, Placement::kRoundRobin, Placement::kSplit}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      StepWorld world({7, 5, 3}, 6, placement, seed);
      const DeviceArenaShape shape = Shared(Shape(world));
      FakeDeviceOptions fake;
      fake.seed = seed;
      const auto home = Creator(shape, On(kHome, OnAThread()));
      const auto peer = Importer(home->arena->fd(), shape, On(kPeer, fake));
      const auto engine = peer->Engine(world);
      ASSERT_NE(engine, nullptr);
      EXPECT_THAT(engine->Describe(), HasSubstr("fetched from the memory of another GPU"));
      for (int step = 0; step < 2; ++step) {
        world.RandomValues();
        home->Write(world);
        const auto batch = world.RandomBatch();
        Outcome outcome = RunStep(*engine, world, batch, step);
        outcome.gradient = peer->Gradient(world, step);
        ExpectNear(world, outcome, world.Reference(batch));
      }
    }
  }
}

TEST(PeerArenaTest, NothingIsLostBetweenWorkersOnTwoDevices) {
  ExpectNothingIsLost(
      Shared(Shape({32 * 8}, 0)),
      [](const DeviceArenaShape& shape, Worker* first, std::size_t number) {
        const FakeDeviceOptions fake = On(number % 2 == 0 ? kHome : kPeer, OnAThread());
        return first == nullptr ? Creator(shape, fake) : Importer(first->arena->fd(), shape, fake);
      },
      [](Worker& worker) {
        // Those on the home too: atomic operations of different scopes may overtake one another.
        EXPECT_EQ(worker.device.kernels_at(Scope::kGpu), 0u);
        EXPECT_GT(worker.device.kernels_at(Scope::kSystem), 0u);
      });
}

TEST(PeerArenaTest, OnOneDeviceNothingIsAtSystemScope) {
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdam}) {
    for (const bool claims : {true, false}) {
      if (!claims && kind != OptimizerKind::kSgd) continue;
      OptimizerConfig config;
      config.kind = kind;
      const auto worker = Creator(Shape({64}, NumSlots(config)), OnAThread());
      const StepScalars scalars = Scalars(kind);
      DeviceArena::Push push = FirstPush(scalars);
      push.claims = claims;
      worker->Apply(push);
      EXPECT_EQ(worker->device.kernels_at(Scope::kSystem), 0u);
      EXPECT_EQ(worker->device.kernels_at(Scope::kGpu), 1u);
    }
  }
}

// Who held a block died on the one device; a worker on the other goes on with it.
TEST(PeerArenaTest, ClaimOfADeadWorkerIsTakenOverFromAnotherDevice) {
  const DeviceArenaShape shape = Shared(Shape({96}, 0));
  const auto home = Creator(shape, On(kHome, OnAThread()));
  const auto peer = Importer(home->arena->fd(), shape, On(kPeer, OnAThread()));
  const StepScalars scalars = Scalars(OptimizerKind::kSgd);
  for (Worker* const alive : {peer.get(), home.get()}) {
    const std::uint64_t dead = 0x70002;  // life 7 of worker/1
    ASSERT_TRUE(home->device
                    .CopyIn(reinterpret_cast<char*>(const_cast<float*>(home->arena->values(0))) -
                                3 * 128 - 128,  // the claims lie before the values, padded to 256
                            &dead, sizeof dead)
                    .ok());
    alive->SetGradient(0, 96, -1);
    DeviceArena::Push push = FirstPush(scalars);
    BlocksSwept pushed = alive->Apply(push);
    EXPECT_EQ(pushed.left, 1u);
    EXPECT_EQ(pushed.holder, dead);
    push.goes_on = true;
    push.former = dead;
    pushed = alive->Apply(push);
    EXPECT_EQ(pushed.left, 0u);
    EXPECT_EQ(pushed.taken_over, 1u);
  }
  EXPECT_THAT(peer->Read(0, 0, 96), Each(2.0f));
}

TEST(PeerArenaTest, WhatAPeerLacksIsSaidInOneSentenceWithBothGpus) {
  const DeviceArenaShape shape = Shared(Shape({64}, 0));
  const auto home = Creator(shape, On(kHome, OnAThread()));
  const auto refusal = [&](const FakeDeviceOptions& options, const DeviceArenaShape& wanted) {
    FakeDevice device(options);
    const auto arena = ImportMappedArena(device, home->arena->fd(), wanted);
    EXPECT_EQ(device.memories_alive(), 0u);
    EXPECT_THAT(device.violations(), IsEmpty());
    EXPECT_FALSE(arena.ok());
    EXPECT_EQ(arena.status().message().find(". "), std::string::npos);
    return arena.status();
  };
  FakeDeviceOptions fake = On(kPeer, OnAThread());
  fake.peers.native_atomics = false;
  EXPECT_EQ(refusal(fake, shape).code(), Code::kFailedPrecondition);
  EXPECT_THAT(refusal(fake, shape).message(),
              AllOf(HasSubstr("GPU GPU-bbbb cannot do atomic operations on the memory of GPU "
                              "GPU-aaaa, which holds the parameters"),
                    HasSubstr("--arena host")));
  for (bool PeerFacts::*missing : {&PeerFacts::can_access, &PeerFacts::access_enabled}) {
    fake.peers = {true, true, true};
    fake.peers.*missing = false;
    EXPECT_THAT(refusal(fake, shape).message(),
                HasSubstr("GPU GPU-bbbb cannot access the memory of GPU GPU-aaaa"));
  }
  fake.peers = {true, true, true};
  fake.visible = {kPeer, "GPU-cccc"};
  EXPECT_THAT(refusal(fake, shape).message(),
              AllOf(HasSubstr("GPU GPU-bbbb does not see GPU GPU-aaaa"),
                    HasSubstr("sees GPU-bbbb, GPU-cccc"), HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_THAT(refusal(On("MIG-dddd", OnAThread()), shape).message(),
              HasSubstr("MIG-dddd is a MIG instance"));
  // Of one mind, or not at all: on the home device too.
  DeviceArenaShape alone = shape;
  alone.several_gpus = false;
  EXPECT_EQ(refusal(On(kHome, OnAThread()), alone).code(), Code::kDataLoss);
  EXPECT_THAT(refusal(On(kHome, OnAThread()), alone).message(),
              HasSubstr("was made for workers on several GPUs, and this task was started for "
                        "workers on one GPU"));
}

TEST(PeerArenaTest, GpuThatHangsWhileAPeerReadsIsAnErrorInTime) {
  const DeviceArenaShape shape = Shared(Shape({64}, 0));
  const auto home = Creator(shape, On(kHome, OnAThread()));
  FakeDeviceOptions fake = On(kPeer, OnAThread());
  fake.hang_at = 1;  // the header was read by the first launch
  FakeDevice device(fake);
  auto arena = ImportMappedArena(device, home->arena->fd(), shape);
  ASSERT_TRUE(arena.ok()) << arena.status().message();
  std::vector<float> values(64);
  const Status read =
      (*arena)->Read(0, 0, values.data(), Deadline::After(std::chrono::milliseconds(50)));
  EXPECT_EQ(read.code(), Code::kDeadlineExceeded);
  arena->reset();
  EXPECT_THAT(device.violations(), IsEmpty());
  EXPECT_GT(device.memories_alive(), 0u);  // what it may still write to is left to it
}

// The fake refuses what would lose updates on a GPU, so that the tests above mean something.
TEST(PeerArenaTest, FakeDeviceRefusesOtherDevicesMemoryAtTheWrongScope) {
  FakeDevice home(On(kHome, OnAThread())), peer(On(kPeer, OnAThread()));
  FileDescriptor fd;
  const auto made = home.CreateShared(4096, &fd);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(peer.ImportShared(fd.get(), 4096, "GPU-cccc").status().code(), Code::kInternal);
  EXPECT_EQ(peer.ImportShared(fd.get(), 4096, "").status().code(), Code::kInternal);
  auto far = peer.ImportShared(fd.get(), 4096, kHome);
  auto near = peer.Allocate(4096);
  ASSERT_TRUE(far.ok() && near.ok());
  auto* const values = static_cast<float*>(far->get());
  auto* const own = static_cast<float*>(near->get());
  const StepScalars* const scalars = reinterpret_cast<StepScalars*>(own + 512);
  const auto prepare = [&](Operation operation, void* to, const void* from) {
    Plan plan;
    plan.Add("it", operation, {{from, 256}}, {{to, 256}});
    return peer.Prepare(plan, Device::How::kGraph).status();
  };
  EXPECT_TRUE(prepare(AnyKernel(MakeFetch(own, values, 256)), own, values).ok());
  EXPECT_TRUE(
      prepare(AnyKernel(AtomicSgdKernel<Scope::kSystem>{scalars, values, own, 64}), values, own)
          .ok());
  for (const Operation& operation :
       {Operation(AnyKernel(AtomicSgdKernel<Scope::kGpu>{scalars, values, own, 64})),
        Operation(AnyKernel(ReluMaskKernel{own, 64, values, 64, 1, 64})),
        Operation(Copy{Copy::Kind::kDeviceToDevice, values, own, 256})}) {
    EXPECT_THAT(prepare(operation, values, own).message(), HasSubstr("not at system scope"));
  }
  float word = 0;
  ASSERT_TRUE(peer.CopyOut(&word, values, sizeof word).ok());
  ASSERT_TRUE(peer.CopyIn(values, &word, sizeof word).ok());
  EXPECT_EQ(peer.violations().size(), 2u);
}

}  // namespace
}  // namespace passel::cuda

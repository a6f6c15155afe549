// Two hosts, a cable between them and nothing else: the worker's store is here, the ps there.

#include "support/two_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/random.h"
#include "fabric/counting_workers.h"
#include "support/sanitized.h"
#include "support/test_seed.h"

namespace passel::testing {
namespace {

class TwoHostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    hosts_ = TwoHosts::Get();
    if (hosts_ == nullptr) GTEST_SKIP() << "no network namespaces can be made here";
  }
  TwoHosts* hosts_ = nullptr;
};

TEST_F(TwoHostsTest, TrainOverTheCableAloneWithoutSharedMemory) {
  for (const Mode mode : kAllModes) {
    SCOPED_TRACE(ModeName(mode));
    RemoteHost host(TestPlan(mode, 1, 1, Sgd(1.0)), {}, 0, "", std::chrono::seconds(5),
                    MakeTcpCarrier({.ipv6 = mode == Mode::kLocked}));
    const pid_t ps = host.ps(0).pid();
    EXPECT_NE(NetworkOf(::getpid()), NetworkOf(ps));
    auto store = OpenOn(host, 0);
    InitializeTo(*store, 0);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(PushConstant(*store, -1).ok());
    const auto view = PullLatest(*store);
    ASSERT_TRUE(view.ok()) << view.status().ToString();
    for (const float value : view->values(0)) ASSERT_EQ(value, 20);
    EXPECT_FALSE(MappedMemoryFiles(ps).empty()) << "the arena";
    EXPECT_EQ(hosts_->watch().Look(), "");
  }
}

// What would fail any test here: a process of another network that has this one's memory.
TEST_F(TwoHostsTest, MemoryThatIsSharedWouldBeSeen) {
  const FileDescriptor file(::memfd_create("shared", 0));
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  void* const memory = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  const pid_t other = ::fork();
  if (other == 0) {
    if (::unshare(CLONE_NEWNET) != 0) ::_exit(1);
    for (;;) ::pause();
  }
  const auto end = Deadline::After(std::chrono::seconds(30));
  while (NetworkOf(other) == NetworkOf(::getpid()) && !end.Expired()) std::this_thread::yield();
  EXPECT_THAT(SharedBetween({NetworkOf(::getpid()), NetworkOf(other)}),
              ::testing::HasSubstr("are on two hosts and share memory file"));
  ::munmap(memory, 4096);
  EXPECT_EQ(SharedBetween({NetworkOf(::getpid()), NetworkOf(other)}), "");
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

class PulledCableTest : public TwoHostsTest, public ::testing::WithParamInterface<Mode> {};

// For less than any limit: no connection ends, nothing that was acknowledged is lost, and nothing
// is applied twice.
TEST_P(PulledCableTest, CostsTimeAlone) {
  const int cuts = ManyTurns() ? 200 : 2;
  const std::uint64_t seed = TestSeed();
  RemoteHost host(CountingPlan(GetParam()), {}, seed, "", std::chrono::seconds(5),
                  MakeTcpCarrier());
  ExpectEachPushOnce(host, GetParam(), [&](const auto& await_pushes) {
    Random random(seed);
    int done = 0;
    while (done < cuts && !HasFailure()) {
      // TCP asks again after 0.2 s, 0.4 s and so on: a cable that is out most of the time is
      // another matter.
      await_pushes();
      std::this_thread::sleep_for(std::chrono::milliseconds(random.Below(100)));
      EXPECT_TRUE(hosts_->Cable(false));
      std::this_thread::sleep_for(std::chrono::milliseconds(50 + random.Below(1950)));
      EXPECT_TRUE(hosts_->Cable(true));
      ++done;
    }
    EXPECT_EQ(done, cuts);
  });
}

INSTANTIATE_TEST_SUITE_P(InModesThatCount, PulledCableTest,
                         ::testing::Values(Mode::kLocked, Mode::kBarrier, Mode::kReplicas),
                         [](const ::testing::TestParamInfo<Mode>& of) {
                           return std::string(ModeName(of.param));
                         });

}  // namespace
}  // namespace passel::testing

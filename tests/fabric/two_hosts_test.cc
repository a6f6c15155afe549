// Two hosts, a cable between them and nothing else: the worker's store is here, the ps there.

#include "support/two_hosts.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "base/random.h"
#include "fabric/counting_workers.h"
#include "support/sanitized.h"
#include "support/test_seed.h"

namespace passel::testing {
namespace {

std::string NetworkOf(const std::string& process) {
  char name[PATH_MAX] = "";
  const std::string link = "/proc/" + process + "/ns/net";
  return ::readlink(link.c_str(), name, sizeof name - 1) > 0 ? name : link;
}

// "/memfd:... inode" of everything that a process has mapped from memory files.
std::set<std::string> MemoryFiles(const std::string& process) {
  std::set<std::string> found;
  std::ifstream maps("/proc/" + process + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:") == std::string::npos) continue;
    std::istringstream words(line);
    std::string range, access, offset, device, inode;
    words >> range >> access >> offset >> device >> inode;
    found.insert(device + ":" + inode);
  }
  return found;
}

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
    const std::string ps = std::to_string(host.ps(0).pid());
    EXPECT_NE(NetworkOf("thread-self"), NetworkOf(ps));
    auto store = OpenOn(host, 0);
    InitializeTo(*store, 0);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(PushConstant(*store, -1).ok());
    const auto view = PullLatest(*store);
    ASSERT_TRUE(view.ok()) << view.status().ToString();
    for (const float value : view->values(0)) ASSERT_EQ(value, 20);
    const std::set<std::string> theirs = MemoryFiles(ps), ours = MemoryFiles("self");
    EXPECT_FALSE(theirs.empty()) << "the arena";
    for (const std::string& file : ours) EXPECT_EQ(theirs.count(file), 0u) << file;
  }
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

// Two hosts, a cable between them and nothing else: the worker's store is here, the ps there.

#include "support/two_hosts.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "fabric/remote_ps.h"
#include "fabric/remote_stores.h"

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

// The cable is pulled and put in again: nothing that was acknowledged is lost, nothing is applied
// twice.
TEST_F(TwoHostsTest, CableThatIsPulledCostsTimeAlone) {
  RemoteHost host(TestPlan(Mode::kLocked, 1, 1, Sgd(1.0)), {}, 0, "", std::chrono::seconds(60),
                  MakeTcpCarrier());
  auto store = OpenOn(host, 0);
  InitializeTo(*store, 0);
  std::atomic<bool> stop{false};
  std::thread cutter([&] {
    for (int i = 0; i < 5 && !stop; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_TRUE(hosts_->Cable(false));
      std::this_thread::sleep_for(std::chrono::milliseconds(40 << i));
      EXPECT_TRUE(hosts_->Cable(true));
    }
    stop = true;
  });
  float pushed = 0;
  while (!stop) {
    const auto outcome = PushConstant(*store, -1);
    EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
    if (!outcome.ok()) break;
    ++pushed;
  }
  stop = true;
  cutter.join();
  const auto view = PullLatest(*store);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  EXPECT_GT(pushed, 0);
  for (const float value : view->values(0)) ASSERT_EQ(value, pushed);
}

}  // namespace
}  // namespace passel::testing

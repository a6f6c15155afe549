// What a uid and a clock are worth, on copies of the kernel's files.

#include "base/namespaces.h"
#include "support/temp_dir.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace passel {
namespace {

class NamespacesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(root_ + "/proc/self/ns");
    std::filesystem::create_directories(root_ + "/proc/sys/kernel");
    Write("/proc/sys/kernel/overflowuid", "65534\n");
  }
  void Write(const std::string& path, const std::string& text) const {
    std::ofstream(root_ + path) << text;
  }
  void Link(const std::string& name, const std::string& target) const {
    const std::string path = root_ + "/proc/self/ns/" + name;
    std::filesystem::remove(path);
    std::filesystem::create_symlink(target, path);
  }

  const test::TempDir temporary_;
  const std::string root_ = temporary_.path();
};

TEST_F(NamespacesTest, OverflowUidMeansOneUserOnlyWhereEveryUserHasANumber) {
  Write("/proc/self/uid_map", "         0          0 4294967295\n");
  EXPECT_TRUE(UidMeansOneUser(0, root_));
  EXPECT_TRUE(UidMeansOneUser(65534, root_));
  for (const char* map : {"", "0 1000 1\n", "0 100000 65536\n", "65534 65534 1\n"}) {
    Write("/proc/self/uid_map", map);
    EXPECT_TRUE(UidMeansOneUser(0, root_)) << map;
    EXPECT_FALSE(UidMeansOneUser(65534, root_)) << map;
  }
  Write("/proc/sys/kernel/overflowuid", "7\n");
  EXPECT_FALSE(UidMeansOneUser(7, root_));
  EXPECT_TRUE(UidMeansOneUser(65534, root_));
}

TEST_F(NamespacesTest, ClocksAreNamedByTheirOffsetsNotByTheirNamespace) {
  EXPECT_EQ(ClockOffsets(root_), "") << "a kernel without time namespaces";
  EXPECT_TRUE(CheckClocksOfChildren(root_).ok());
  Write("/proc/self/timens_offsets", "monotonic           0         0\nboottime       -1000  5\n");
  for (const char* name : {"time:[1]", "time:[2]"}) {
    Link("time", name);
    Link("time_for_children", name);
    EXPECT_EQ(ClockOffsets(root_), "monotonic 0 0, boottime -1000 5");
    EXPECT_TRUE(CheckClocksOfChildren(root_).ok());
  }
  Link("time_for_children", "time:[3]");
  EXPECT_EQ(ClockOffsets(root_), "time:[2]");
  EXPECT_EQ(CheckClocksOfChildren(root_).code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace passel

#include "cluster/endpoint.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "base/unix_socket.h"

namespace passel {
namespace {

TEST(RoleTest, NamesReadBackAndOthersAreNone) {
  for (const Role role : {Role::kWorker, Role::kPs, Role::kSupervisor, Role::kControl}) {
    EXPECT_EQ(ParseRole(RoleName(role)), role);
  }
  for (const char* name : {"", "Worker", "ps ", "unknown", "chief"}) {
    EXPECT_FALSE(ParseRole(name).has_value()) << name;
  }
}

TEST(EndpointTest, NameHoldsUserJobRoleAndIndex) {
  EXPECT_EQ(EndpointName("job.1", Role::kPs, 2), fmt::format("passel.{}.job.1.ps.2", ::getuid()));
}

TEST(EndpointTest, LongestNameFitsASocketAddress) {
  const std::string job(48, 'j');
  const Result<FileDescriptor> socket = ListenAbstract(EndpointName(job, Role::kSupervisor, 255));
  EXPECT_TRUE(socket.ok()) << socket.status().message();
}

TEST(EndpointTest, FindsExactlyTheListenersOfThisUser) {
  const std::string job = fmt::format("find-{}.ps.7", ::getpid());  // dots are part of a job id
  const auto found = [&] {
    const Result<std::vector<FoundEndpoint>> all = FindEndpoints();
    EXPECT_TRUE(all.ok());
    std::vector<std::string> mine;
    for (const FoundEndpoint& e : *all) {
      if (e.job_id == job) mine.push_back(fmt::format("{}/{}", RoleName(e.role), e.index));
    }
    std::sort(mine.begin(), mine.end());
    return mine;
  };
  EXPECT_TRUE(found().empty());
  {
    const Result<FileDescriptor> ps = ListenAbstract(EndpointName(job, Role::kPs, 3));
    const Result<FileDescriptor> worker = ListenAbstract(EndpointName(job, Role::kWorker, 12));
    const Result<FileDescriptor> other =
        ListenAbstract(fmt::format("passel.{}.{}.ps.0", ::getuid() + 1, job));
    const Result<FileDescriptor> no_index =
        ListenAbstract(fmt::format("passel.{}.{}.ps.x", ::getuid(), job));
    const Result<FileDescriptor> no_role =
        ListenAbstract(fmt::format("passel.{}.{}.cook.0", ::getuid(), job));
    ASSERT_TRUE(ps.ok() && worker.ok() && other.ok() && no_index.ok() && no_role.ok());
    // A connection carries the name too, and is not counted again.
    const Result<FileDescriptor> connection =
        ConnectAbstract(EndpointName(job, Role::kPs, 3), Deadline::After(std::chrono::seconds(1)));
    ASSERT_TRUE(connection.ok());
    EXPECT_THAT(found(), ::testing::ElementsAre("ps/3", "worker/12"));
  }
  EXPECT_TRUE(found().empty());
}

TEST(EndpointTest, ThatIsTakenNamesTheProcessThatHoldsIt) {
  const std::string job = fmt::format("taken-{}", ::getpid());
  const Result<FileDescriptor> socket = Listen(job, Role::kPs, 0);
  ASSERT_TRUE(socket.ok());
  EXPECT_EQ(Listen(job, Role::kPs, 1).status().code(), Code::kOk);
  const Status taken = Listen(job, Role::kPs, 0).status();
  EXPECT_EQ(taken.code(), Code::kAlreadyExists);
  EXPECT_THAT(taken.message(), ::testing::HasSubstr(fmt::format("process {}", ::getpid())));
  EXPECT_THAT(taken.message(), ::testing::HasSubstr(job));
}

}  // namespace
}  // namespace passel

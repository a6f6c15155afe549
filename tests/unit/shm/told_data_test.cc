// What a ps answers to those who ask which data its job trains on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/shm/ps_thread.h"

namespace passel::shm::testing {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

// As an asker sees it, who proves nothing but its uid.
Json DataOf(const PsThread& ps) {
  Result<RendezvousClient> control =
      RendezvousClient::Connect(ps.Me(Role::kControl), Role::kPs, 0, nullptr, Soon());
  EXPECT_TRUE(control.ok()) << control.status().message();
  const Result<std::string> status = control->GetStatus(Soon());
  EXPECT_TRUE(status.ok()) << status.status().message();
  return Json::parse(*status)["data"];
}

Status Tell(const PsThread& ps, int worker, const std::string& json) {
  PASSEL_ASSIGN_OR_RETURN(RendezvousClient client, ps.Connect(Role::kWorker, worker));
  PASSEL_ASSIGN_OR_RETURN(const auto about, ParseJson("about", json, 2));
  return client.TellData(about, Soon());
}

TEST(ToldDataTest, IsThatOfTheChiefAndNamesWhatOthersSay) {
  PsThread ps;
  EXPECT_TRUE(DataOf(ps).is_null());
  ASSERT_TRUE(Tell(ps, 1, R"({"directory":"/b"})").ok());
  EXPECT_EQ(DataOf(ps), Json::parse(R"({"directory":"/b","also":[]})"));
  ASSERT_TRUE(Tell(ps, 0, R"({"directory":"/b"})").ok());
  EXPECT_EQ(DataOf(ps), Json::parse(R"({"directory":"/b","also":[]})"));
  // In its next life the chief says something else.
  ASSERT_TRUE(Tell(ps, 0, R"({"directory":"/a"})").ok());
  EXPECT_EQ(DataOf(ps), Json::parse(R"({"directory":"/a","also":[{"directory":"/b"}]})"));
  // That there are others is known: more of them change nothing.
  ASSERT_TRUE(Tell(ps, 1, R"({"directory":"/c"})").ok());
  EXPECT_EQ(DataOf(ps)["also"].size(), 1u);
}

TEST(ToldDataTest, ComesFromWorkersAloneAndHasALimit) {
  PsThread ps;
  const Status long_one = Tell(ps, 0, Json({{"directory", std::string(kMaxDataText, 'x')}}).dump());
  EXPECT_EQ(long_one.code(), Code::kInvalidArgument);
  EXPECT_THAT(long_one.message(), HasSubstr("at most 10000 bytes, this one has 10016"));
  EXPECT_EQ(Tell(ps, 0, "[]").code(), Code::kDataLoss);
  Result<RendezvousClient> control =
      RendezvousClient::Connect(ps.Me(Role::kControl), Role::kPs, 0, nullptr, Soon());
  ASSERT_TRUE(control.ok());
  EXPECT_EQ(control->TellData({{"directory", "/a"}}, Soon()).code(), Code::kPermissionDenied);
  Result<RendezvousClient> evaluator = ps.Connect(Role::kEvaluator, 0);
  ASSERT_TRUE(evaluator.ok()) << evaluator.status().message();
  EXPECT_EQ(evaluator->TellData({{"directory", "/a"}}, Soon()).code(), Code::kPermissionDenied);
  EXPECT_TRUE(DataOf(ps).is_null());
  EXPECT_TRUE(ps.Serves());
}

}  // namespace
}  // namespace passel::shm::testing

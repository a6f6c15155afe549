// An arena that is made anew: for the chief alone, and not under anybody who trains.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/membership.h"
#include "tests/unit/shm/ps_thread.h"
#include "tests/unit/store/small_plan.h"

namespace passel::shm::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Result<Arena> ArenaOf(Result<FileDescriptor> fd) {
  PASSEL_RETURN_IF_ERROR(fd.status());
  return Arena::Adopt(std::move(*fd));
}

TEST(RenewTest, IsRefusedWhileAWorkerTrains) {
  PsThread ps;
  const std::string plan = ToJson(passel::SmallPlan(kWorkers));
  Result<RendezvousClient> chief = ps.Connect(Role::kWorker, 0);
  ASSERT_TRUE(chief.ok()) << chief.status().message();
  const Result<Arena> before = ArenaOf(chief->ProposePlan(plan, Soon()));
  ASSERT_TRUE(before.ok()) << before.status().message();
  const auto epoch = Join(before->memory(), 1, SelfIdentity());
  ASSERT_TRUE(epoch.ok()) << epoch.status().message();
  const Status refused = chief->Renew(plan, Soon()).status();
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("worker/1 (process " + std::to_string(::getpid())),
                                       HasSubstr("still trains on the values of ps/0")));
  EXPECT_EQ(before->memory().state->stop.load(), 0u);

  ASSERT_TRUE(MarkDead(before->memory(), 1, *epoch));
  const Result<Arena> after = ArenaOf(chief->Renew(plan, Soon()));
  ASSERT_TRUE(after.ok()) << after.status().message();
  EXPECT_NE(after->nonce(), before->nonce());
  EXPECT_EQ(StateOf(after->memory(), 1), TaskState());
  EXPECT_EQ(before->memory().state->stop.load(), 1u) << "who is left there leaves";
  EXPECT_TRUE(ps.Serves());
}

// The reader's end must not touch the memory that is gone.
TEST(RenewTest, EndsTheMeetingThatAReaderHolds) {
  PsThread ps;
  const std::string plan = ToJson(passel::SmallPlan(kWorkers));
  Result<RendezvousClient> chief = ps.Connect(Role::kWorker, 0);
  ASSERT_TRUE(chief.ok()) << chief.status().message();
  const Result<Arena> before = ArenaOf(chief->ProposePlan(plan, Soon()));
  ASSERT_TRUE(before.ok()) << before.status().message();
  before->memory().state->initialized.store(1);
  Result<RendezvousClient> reader = RendezvousClient::Control(ps.job(), 0, Soon());
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  const Result<std::int64_t> met = reader->Meet(Soon());
  ASSERT_TRUE(met.ok()) << met.status().message();
  const Result<Arena> after = ArenaOf(chief->Renew(plan, Soon()));
  ASSERT_TRUE(after.ok()) << after.status().message();
  EXPECT_EQ(reader->GoOn(Soon()).status().code(), Code::kAborted);
  EXPECT_EQ(AgreedNumber::Unpack(before->memory().state->mode.hold.load()).value, 0u);
  EXPECT_TRUE(ps.Serves());
}

TEST(RenewTest, IsForTheChiefOfAJobByHandAlone) {
  const std::string plan = ToJson(passel::SmallPlan(kWorkers));
  for (const bool supervised : {false, true}) {
    PsThread ps(supervised);
    for (const auto& [role, index] : {std::pair{Role::kWorker, 1}, {Role::kPs, 1}}) {
      Result<RendezvousClient> other = ps.Connect(role, index);
      ASSERT_TRUE(other.ok()) << other.status().message();
      EXPECT_EQ(other->Renew(plan, Soon()).status().code(), Code::kPermissionDenied);
    }
    if (!supervised) continue;
    Result<RendezvousClient> chief = ps.Connect(Role::kWorker, 0);
    ASSERT_TRUE(chief.ok()) << chief.status().message();
    EXPECT_EQ(chief->Renew(plan, Soon()).status().code(), Code::kPermissionDenied);
  }
}

}  // namespace
}  // namespace passel::shm::testing

// Who is found dead, given up, or left alone.

#include "store/caretaker.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "store/membership.h"
#include "store/open_store.h"
#include "tests/unit/store/small_plan.h"

namespace passel {
namespace {

class CaretakerTest : public ::testing::Test {
 protected:
  const ShardMemory& memory() const { return arena_->shard(0); }
  Phase PhaseOf(int worker) const { return StateOf(memory(), worker).phase; }
  void Set(int worker, Phase phase) {
    memory().tasks[worker].identity[1] = SelfIdentity();  // that of epoch 1
    memory().tasks[worker].state.store(TaskState{1, phase}.Pack());
  }

  const std::unique_ptr<InProcessArena> arena_ = std::move(*InProcessArena::Create(SmallPlan(2)));
  Caretaker caretaker_{WorkerNames()};
};

TEST_F(CaretakerTest, JoinerWithoutAConnectionIsDeadAfterAWhile) {
  Set(0, Phase::kJoining);
  Set(1, Phase::kJoining);
  const auto look = [&] { caretaker_.FindDead(memory(), [](int worker) { return worker == 1; }); };
  look();
  EXPECT_EQ(PhaseOf(0), Phase::kJoining);
  std::this_thread::sleep_for(kJoinPatience + std::chrono::milliseconds(50));
  look();
  EXPECT_EQ(PhaseOf(0), Phase::kDead);
  EXPECT_EQ(PhaseOf(1), Phase::kJoining) << "its connection would have ended";
}

TEST_F(CaretakerTest, WhoNeverCameIsGivenUpOnceNobodyRuns) {
  Set(0, Phase::kRunning);
  caretaker_.GiveUpThoseWhoNeverCame(memory(), std::chrono::seconds(1), true);
  EXPECT_EQ(PhaseOf(1), Phase::kExpected);
  Set(0, Phase::kDone);
  caretaker_.GiveUpThoseWhoNeverCame(memory(), std::chrono::seconds(1), true);
  EXPECT_EQ(PhaseOf(1), Phase::kEvicted);
}

// The same life of the same worker ends in one memory, and in the one after it.
TEST_F(CaretakerTest, WhoEndsInAnotherMemoryIsToldOfToo) {
  caretaker_.TellDepartures(memory());
  Set(0, Phase::kDead);
  const auto told = [&] {
    ::testing::internal::CaptureStderr();
    caretaker_.TellDepartures(memory());
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(told().find("died"), std::string::npos);
  EXPECT_EQ(told(), "");
  Set(0, Phase::kExpected);
  caretaker_.BeginAnew();
  caretaker_.TellDepartures(memory());
  Set(0, Phase::kDead);
  EXPECT_NE(told().find("died"), std::string::npos);
}

TEST_F(CaretakerTest, EndOfAProcessEndsItsOwnLifeAlone) {
  ProcessIdentity other = SelfIdentity();
  ++other.start_time;
  Set(0, Phase::kRunning);
  MarkGone(memory(), 0, other, false);
  EXPECT_EQ(PhaseOf(0), Phase::kRunning);
  MarkGone(memory(), 0, SelfIdentity(), true);
  EXPECT_EQ(PhaseOf(0), Phase::kDead);
  Set(1, Phase::kJoining);
  MarkGone(memory(), 1, other, true);
  EXPECT_EQ(PhaseOf(1), Phase::kJoining) << "somebody else may be the one who joins";
  MarkGone(memory(), 1, other, false);
  EXPECT_EQ(PhaseOf(1), Phase::kDead);
  MarkGone(memory(), 2, other, false);  // there is no such worker
}

}  // namespace
}  // namespace passel

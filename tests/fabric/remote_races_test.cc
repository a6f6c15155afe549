// What goes wrong between a worker, its proxy and the others at the wrong moment.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "conformance/heap_host.h"
#include "fabric/remote_ps.h"
#include "fabric/remote_stores.h"
#include "support/sanitized.h"

namespace passel::testing {
namespace {

using std::chrono::milliseconds;

float First(ParameterStore& store) {
  const Result<ParamView> view = store.Pull(PullMode::kView);
  EXPECT_TRUE(view.ok()) << view.status().ToString();
  return view.ok() ? view->values(0)[0] : -1;
}

void FillWithOnes(VarId, int, std::span<float> values) {
  for (float& x : values) x = 1;
}

JobProgress ProgressAt40(int shards) {
  JobProgress progress;
  progress.global_step = 40;
  progress.workers = {{7, 2, 30}, {7, 2, 31}};
  progress.shards.assign(static_cast<std::size_t>(shards), {40, 40});
  return progress;
}

TEST(RemoteRaces, AfterAChangeOfTheModeNobodyComputesOnFormerValues) {
  StorePlan plan = TestPlan(Mode::kHogwild, 1, 2, Sgd(1.0));
  plan.schedule = {{2, {Mode::kBarrier}}};
  RemoteHost host(plan);
  const auto a = OpenOn(host, 0);
  const auto b = OpenOn(host, 1);
  InitializeTo(*a, 0);
  ASSERT_TRUE(b->WaitUntilInitialized(Deadline::After(kLong)).ok());
  ASSERT_TRUE(PushConstant(*a, -1).ok());
  const Result<Ticket> due = PushOnly(*a, -1);  // step 2: the change is due
  ASSERT_TRUE(due.ok());
  auto waits =
      std::async(std::launch::async, [&] { return a->Wait(*due, Deadline::After(kLong)); });
  ASSERT_TRUE(PushConstant(*b, -1).ok());  // step 3
  ASSERT_TRUE(waits.get().ok());
  EXPECT_EQ(a->mode(), Mode::kBarrier);
  EXPECT_EQ(First(*a), 3);
}

// The lead's process is slow between its looks at two words: at each of its looks in turn that may
// be the one that counts.
TEST(RemoteRaces, WhoHearsOfTheLastRoundHearsOfTheChangeToo) {
  for (int look = 24; look <= 64; look += Turns(1, 4)) {
    SCOPED_TRACE(look);
    StorePlan plan = TestPlan(Mode::kBarrier, 2, 2, Sgd(1.0));
    plan.schedule = {{3, {Mode::kHogwild}}};
    RemoteHost host(plan, {}, 0, "lead.state:" + std::to_string(look) + ":sleep20");
    const auto a = OpenOn(host, 0);
    const auto b = OpenOn(host, 1);
    InitializeTo(*a, 0);
    ASSERT_TRUE(b->WaitUntilInitialized(Deadline::After(kLong)).ok());
    const auto train = [](ParameterStore& store) -> Status {
      for (int step = 0; step < 9 && store.mode() == Mode::kBarrier; ++step) {
        PASSEL_ASSIGN_OR_RETURN(const Ticket ticket, PushOnly(store, -1));
        PASSEL_RETURN_IF_ERROR(
            store.Wait(ticket, Deadline::After(std::chrono::seconds(5))).status());
      }
      return {};
    };
    auto first = std::async(std::launch::async, [&] { return train(*a); });
    const Status second = train(*b);
    EXPECT_EQ(second.ToString(), Status().ToString());
    EXPECT_EQ(first.get().ToString(), Status().ToString());
    ASSERT_EQ(a->mode(), Mode::kHogwild);
  }
}

TEST(RemoteRaces, ValuesAreOfTheRoundThatTheirVersionNames) {
  StorePlan plan = TestPlan(Mode::kReplicas, 1, 2, Sgd(1.0));
  plan.mode.number = 1;
  RemoteHost host(plan);
  const auto a = OpenOn(host, 0);
  const auto b = OpenOn(host, 1);
  InitializeTo(*a, 0);
  ASSERT_TRUE(b->WaitUntilInitialized(Deadline::After(kLong)).ok());
  ASSERT_TRUE(PushConstant(*a, -1).ok());
  for (int i = 0; i < 2; ++i) {
    First(*b);
    const Result<PushOutcome> outcome = PushConstant(*b, -1);
    ASSERT_TRUE(outcome.ok() && outcome->applied);
  }
  (void)a->membership();  // whose answer says how far the others are
  const Result<ParamView> view = a->Pull(PullMode::kView);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->values(0)[0], static_cast<float>(view->version()));
}

TEST(RemoteRaces, RestoredCursorsReachWhoReadsTheData) {
  const StorePlan plan = TestPlan(Mode::kHogwild, 1, 2, Sgd(1.0));
  RemoteHost host(plan);
  const auto a = OpenOn(host, 0);
  const auto b = OpenOn(host, 1);
  ASSERT_TRUE(a->Restore(ProgressAt40(1), FillWithOnes).ok());
  ASSERT_TRUE(b->WaitUntilInitialized(Deadline::After(kLong)).ok());
  EXPECT_EQ(a->counters().cursor_index.load(), 30u);
  EXPECT_EQ(b->counters().cursor_index.load(), 31u);
  // And stay what they are when the next step tells what this worker has counted.
  ASSERT_TRUE(PushConstant(*b, -1).ok());
  ASSERT_TRUE(b->LeaveForNow().ok());
  EXPECT_EQ(OpenOn(host, 1)->counters().cursor_index.load(), 31u);
}

TEST(RemoteRaces, WhoJoinsWhileTheChiefRestoresIsNotToldThatValuesAreLost) {
  RemoteHost host(TestPlan(Mode::kHogwild, 2, 2, Sgd(1.0)), {}, 0, "chief.before_open:1:sleep1000");
  const auto chief = OpenOn(host, 0);
  auto restored =
      std::async(std::launch::async, [&] { return chief->Restore(ProgressAt40(2), FillWithOnes); });
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_NE(OpenOn(host, 1), nullptr);
  EXPECT_TRUE(restored.get().ok());
}

TEST(RemoteRaces, AChiefThatComesBackFinishesWhatItsFormerLifeBegan) {
  for (const bool restore : {false, true}) {
    SCOPED_TRACE(restore);
    RemoteHost host(TestPlan(Mode::kHogwild, 2, 1, Sgd(1.0)), {}, 0, "chief.before_open:1:kill",
                    milliseconds(200));
    host.answer_limit = std::chrono::seconds(2);
    const auto begin = [&](ParameterStore& store) {
      return restore ? store.Restore(ProgressAt40(2), FillWithOnes)
                     : store.Initialize(
                           [](VarId id, std::span<float> values) { FillWithOnes(id, 0, values); });
    };
    auto chief = OpenOn(host, 0);
    EXPECT_FALSE(begin(*chief).ok()) << "ps/0 was killed behind ps/1's first values";
    chief.reset();
    host.ps(0).Start();
    chief = OpenOn(host, 0);
    ASSERT_NE(chief, nullptr);
    const Status status = begin(*chief);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(First(*chief), 1);
  }
}

TEST(RemoteRaces, ALifeThatIsOverWritesNothingIntoItsSuccessors) {
  for (const int shards : {1, 2}) {
    SCOPED_TRACE(shards);
    RemoteHost host(TestPlan(Mode::kBarrier, shards, 2, Sgd(1.0)));
    const auto a = OpenOn(host, 0, Engine(milliseconds(300)));
    const auto former = OpenOn(host, 1);
    InitializeTo(*a, 0);
    ASSERT_TRUE(former->WaitUntilInitialized(Deadline::After(kLong)).ok());
    auto other = std::async(std::launch::async, [&] { return PushConstant(*former, -1); });
    ASSERT_TRUE(PushConstant(*a, -1).ok());
    ASSERT_TRUE(other.get().ok());
    ASSERT_TRUE(PushConstant(*a, -1).ok());  // evicts the other, which does nothing
    const auto successor = OpenOn(host, 1);
    ASSERT_NE(successor, nullptr);
    ASSERT_TRUE(successor->WaitUntilInitialized(Deadline::After(kLong)).ok());
    const Result<Ticket> ticket = PushOnly(*successor, -1);
    ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
    EXPECT_EQ(PushOnly(*former, -100).status().code(), Code::kAborted);
    ASSERT_TRUE(PushConstant(*a, -1).ok());
    ASSERT_TRUE(successor->Wait(*ticket, Deadline::After(kLong)).ok());
    EXPECT_EQ(First(*a), 3);
  }
}

TEST(RemoteRaces, WhoWasAwayWhileTheModeChangedPushesNothingInItsFormerMode) {
  StorePlan plan = TestPlan(Mode::kHogwild, 1, 2, Sgd(1.0));
  plan.schedule = {{3, {Mode::kBarrier}}};
  RemoteHost host(plan, {}, 0, "", milliseconds(300));
  const auto a = OpenOn(host, 0);
  const auto away = OpenOn(host, 1);
  InitializeTo(*a, 0);
  ASSERT_TRUE(away->WaitUntilInitialized(Deadline::After(kLong)).ok());
  ASSERT_TRUE(PushConstant(*a, -1).ok());
  const Result<ParamView> view = away->Pull(PullMode::kView);
  ASSERT_TRUE(view.ok());
  GradientBuffer buffer = away->LendGradient();
  FillGradient(*away, buffer, -1);
  host.ps(0).Kill();
  host.ps(0).Start();
  ASSERT_TRUE(PushConstant(*a, -1).ok());
  ASSERT_TRUE(PushConstant(*a, -1).ok());  // step 3: waits until the other is dead
  EXPECT_EQ(a->mode(), Mode::kBarrier);
  ASSERT_TRUE(PushConstant(*a, -1).ok());
  EXPECT_EQ(away->Push(buffer, view->stamp(), Deadline::After(kLong)).status().code(),
            Code::kAborted);
  EXPECT_EQ(First(*a), 4);
}

// The ps is stopped while a gradient is on its way that is too large for what lies between: the
// request is repeated, and then there are values for who is still sending.
TEST(RemoteRaces, ALargeGradientAndLargeValuesDoNotBlockEachOther) {
  StorePlan plan = TestPlan(Mode::kHogwild, 1, 1, Sgd(1.0));
  VariableInfo v;
  v.name = v.logical = "w";
  v.shape = {Turns(4 << 20, 1 << 18)};
  plan.variables = *VariableTable::Build({v}, 1);
  plan.block_floats = 4096;
  RemoteHost host(plan);
  const auto store = OpenOn(host, 0);
  InitializeTo(*store, 0);
  ASSERT_TRUE(PushConstant(*store, -1).ok());
  const Result<ParamView> view = store->Pull(PullMode::kView);
  ASSERT_TRUE(view.ok());
  GradientBuffer buffer = store->LendGradient();
  FillGradient(*store, buffer, -1);
  ASSERT_EQ(::kill(host.ps(0).pid(), SIGSTOP), 0);
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(300));
    ::kill(host.ps(0).pid(), SIGCONT);
  });
  const std::int64_t begin = MonotonicNs();
  const Result<Ticket> ticket =
      store->Push(buffer, view->stamp(), Deadline::After(std::chrono::seconds(20)));
  later.join();
  EXPECT_TRUE(ticket.ok()) << ticket.status().ToString();
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
  EXPECT_EQ(First(*store), 2);
}

TEST(RemoteRaces, ARoundWhoseEndNobodyHeardOfIsNoSuccess) {
  RemoteHost host(TestPlan(Mode::kBarrier, 2, 1, Sgd(1.0)), {}, 0, "round.before_finish:1:kill");
  host.answer_limit = std::chrono::seconds(2);
  const auto store = OpenOn(host, 0);
  InitializeTo(*store, 0);
  EXPECT_FALSE(PushConstant(*store, -1).ok()) << "ps/0 died before it knew that it was complete";
}

}  // namespace
}  // namespace passel::testing

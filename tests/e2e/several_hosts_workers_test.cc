// What each worker of another host costs its ps: memory, threads and descriptors.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "e2e/hosts_job.h"

namespace passel::testing {
namespace {

using std::chrono::steady_clock;

struct Cost {
  double mib = 0;  ///< of memory that is there, the arena's included
  int threads = 0, descriptors = 0;
};

Cost CostOf(pid_t process) {
  Cost cost;
  std::istringstream status(ReadText(fmt::format("/proc/{}/status", process)));
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    double value = 0;
    words >> name >> value;
    if (name == "VmRSS:") cost.mib = value / 1024;
    if (name == "Threads:") cost.threads = static_cast<int>(value);
  }
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process))) {
    ++cost.descriptors;
  }
  return cost;
}

class WorkersOfAnotherHostTest : public SeveralHostsTest {
 protected:
  /// Each worker may cost the ps so much at most.
  void Train(int workers, const Cost& most, const std::vector<std::string>& flags = {}) {
    std::set<std::string> there;
    for (int k = 0; k < workers; ++k) there.insert(fmt::format("worker/{}", k));
    HostsJob job =
        Job(1, workers, there,
            With({"--train_steps=100000000", "--start_wait=120", "--batch_size=10"}, flags));
    job.Start("ps/0");
    ASSERT_TRUE(job["ps/0"].WaitFor(" is ready")) << job["ps/0"].Err();
    const Cost before = CostOf(job["ps/0"].pid());
    for (const std::string& task : there) job.Start(task);
    const auto all_step = [&] {
      const nlohmann::json status = job.sandbox().Status();
      int stepping = 0;
      for (const nlohmann::json& worker : status["arena"]["workers"]) {
        if (worker["remote"] == true && worker["local_steps"] > 4) ++stepping;
      }
      return stepping == workers;
    };
    const auto end = steady_clock::now() + std::chrono::minutes(3);
    while (!all_step() && steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    ASSERT_TRUE(all_step()) << job.sandbox().Status().dump();
    const Cost after = CostOf(job["ps/0"].pid());
    const Cost each = {(after.mib - before.mib) / workers,
                       (after.threads - before.threads + workers - 1) / workers,
                       (after.descriptors - before.descriptors + workers - 1) / workers};
    const std::string said =
        fmt::format("each of {} workers costs the ps {:.2f} MiB, {} threads and {} descriptors",
                    workers, each.mib, each.threads, each.descriptors);
    RecordProperty("cost", said);
    std::printf("%s\n", said.c_str());
    EXPECT_LE(each.mib, most.mib);
    EXPECT_LE(each.threads, most.threads);
    EXPECT_LE(each.descriptors, most.descriptors);
    job.Stop();
    for (int k = 0; k < workers; ++k) {
      EXPECT_EQ(job.Finish(fmt::format("worker/{}", k), 60).code, 130) << k;
    }
    EXPECT_EQ(job.Finish("ps/0", 60).code, 130);
  }
};

using SlowWorkersOfAnotherHostTest = WorkersOfAnotherHostTest;

constexpr Cost kBySealedTcp = {3, 1, 2};
constexpr Cost kByLibfabric = {16, 2, 16};

TEST_F(WorkersOfAnotherHostTest, EightCostTheirPsLittle) { Train(8, kBySealedTcp); }
TEST_F(SlowWorkersOfAnotherHostTest, SixtyFourCostTheirPsLittleEach) { Train(64, kBySealedTcp); }
TEST_F(SlowWorkersOfAnotherHostTest, SixtyFourByLibfabricCostMore) {
  Train(64, kByLibfabric, {"--fabric_provider=tcp;ofi_rxm"});
}

}  // namespace
}  // namespace passel::testing

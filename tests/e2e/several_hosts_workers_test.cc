// What each worker of another host costs its ps: memory, threads and descriptors.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "e2e/hosts_job.h"

namespace passel::testing {
namespace {

using nlohmann::literals::operator""_json_pointer;
using std::chrono::steady_clock;

struct Cost {
  double mib = 0;  ///< of memory that is there, the arena's included
  double threads = 0, descriptors = 0;
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
    if (name == "Threads:") cost.threads = value;
  }
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process))) {
    ++cost.descriptors;
  }
  return cost;
}

// For a program that is started meanwhile.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t soft) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    struct rlimit few = before_;
    few.rlim_cur = std::min(soft, before_.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  struct rlimit before_ {};
};

class WorkersOfAnotherHostTest : public SeveralHostsTest {
 protected:
  /// Each worker may cost the ps so much at most.
  void Train(int workers, const Cost& most, const std::vector<std::string>& flags = {}) {
    std::set<std::string> there;
    for (int k = 0; k < workers; ++k) there.insert(fmt::format("worker/{}", k));
    HostsJob job =
        Job(1, workers, there,
            With({"--train_steps=100000000", "--start_wait=120", "--batch_size=10"}, flags));
    {
      // Too few, unless it takes more.
      const FewDescriptors few(static_cast<rlim_t>(24 + 2 * workers));
      job.Start("ps/0");
    }
    ASSERT_TRUE(job["ps/0"].WaitFor(" is ready")) << job["ps/0"].Err();
    const Cost before = CostOf(job["ps/0"].pid());
    for (const std::string& task : there) job.Start(task);
    const nlohmann::json nobody = nlohmann::json::array();
    const auto all_step = [&] {
      const nlohmann::json status = job.sandbox().Status();
      if (!status.is_object()) return false;
      int stepping = 0;
      for (const nlohmann::json& worker : status.value("/arena/workers"_json_pointer, nobody)) {
        if (worker.value("remote", false) && worker.value("local_steps", 0) > 4) ++stepping;
      }
      return stepping == workers;
    };
    const auto end = steady_clock::now() + std::chrono::minutes(3);
    while (!all_step() && steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    ASSERT_TRUE(all_step()) << job.sandbox().Status().dump() << job["ps/0"].Err()
                            << job["worker/1"].Err();
    const Cost after = CostOf(job["ps/0"].pid());
    const Cost each = {(after.mib - before.mib) / workers,
                       (after.threads - before.threads) / workers,
                       (after.descriptors - before.descriptors) / workers};
    const std::string said = fmt::format(
        "each of {} workers costs the ps {:.2f} MiB, {:.2f} threads and {:.2f} descriptors",
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

constexpr Cost kMostBySealedTcp = {4, 1.5, 5};
constexpr Cost kMostByLibfabric = {16, 2.5, 20};

TEST_F(WorkersOfAnotherHostTest, EightCostTheirPsLittle) { Train(8, kMostBySealedTcp); }
TEST_F(SlowWorkersOfAnotherHostTest, SixtyFourCostTheirPsLittleEach) {
  Train(64, kMostBySealedTcp);
}
TEST_F(SlowWorkersOfAnotherHostTest, SixtyFourByLibfabricCostMore) {
  Train(64, kMostByLibfabric, {"--fabric_provider=tcp;ofi_rxm"});
}

}  // namespace
}  // namespace passel::testing

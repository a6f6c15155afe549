#include "cuda/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/error_class.h"

namespace passel::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A driver that answers as it was told.
class PlayedDriver : public DriverCalls {
 public:
  DriverAnswer DriverVersion(int* version) override {
    if (version_answer.ok()) *version = driver_version;
    return version_answer;
  }
  int RuntimeVersion() override { return 13000; }
  std::string DriverRelease() override { return release; }
  DriverAnswer DeviceCount(int* count) override {
    if (count_answer.ok()) *count = static_cast<int>(devices.size());
    return count_answer;
  }
  DriverAnswer Facts(int device, DeviceFacts* facts) override {
    if (device == broken_device) {
      return {broken_error, "cudaErrorInvalidDevice (invalid device ordinal)"};
    }
    *facts = devices[static_cast<std::size_t>(device)];
    return {};
  }
  DriverAnswer Peer(int device, int peer, PeerFacts* facts) override {
    asked_about = {device, peer};
    if (peer_answer.ok()) *facts = peer_facts;
    return peer_answer;
  }

  DriverAnswer version_answer;
  int driver_version = 13000;
  std::string release = "580.159.03";
  DriverAnswer count_answer;
  int broken_device = -1;
  int broken_error = 101;
  std::vector<DeviceFacts> devices;
  DriverAnswer peer_answer;
  PeerFacts peer_facts{true, true, true};
  std::pair<int, int> asked_about{-1, -1};
};

DeviceFacts Card(const std::string& uuid, int capability = 90) {
  DeviceFacts facts;
  facts.name = "Card";
  facts.uuid = uuid;
  facts.compute_capability = capability;
  facts.memory_bytes = 1 << 30;
  facts.unified_addressing = true;
  return facts;
}

// One sentence, with a remedy behind a colon.
void ExpectError(PlayedDriver& driver, const std::string& uuid, Code code,
                 const ::testing::Matcher<std::string>& text) {
  const Result<ProbedDevice> probed = Probe(driver, uuid);
  EXPECT_EQ(probed.status().code(), code) << probed.status().ToString();
  EXPECT_THAT(probed.status().message(), text);
  EXPECT_THAT(probed.status().message(), Not(HasSubstr("\n")));
  EXPECT_THAT(probed.status().message(), Not(HasSubstr(". ")));
}

TEST(Probe, TakesTheFirstDeviceAndDescribesIt) {
  PlayedDriver driver;
  driver.devices = {Card("GPU-11", 80), Card("GPU-22")};
  const Result<ProbedDevice> probed = Probe(driver, "");
  ASSERT_TRUE(probed.ok()) << probed.status().ToString();
  EXPECT_EQ(probed->ordinal, 0);
  EXPECT_EQ(probed->info.uuid, "GPU-11");
  EXPECT_EQ(probed->info.compute_capability, 80);
  EXPECT_EQ(probed->info.driver, "580.159.03 (CUDA 13.0)");
  EXPECT_FALSE(probed->info.mps);
  driver.devices[0].mps = true;
  EXPECT_TRUE(Probe(driver, "")->info.mps);
  driver.release.clear();
  EXPECT_EQ(Probe(driver, "")->info.driver, "CUDA 13.0");
}

TEST(Probe, FindsADeviceByItsUuidHoweverItIsWritten) {
  PlayedDriver driver;
  driver.devices = {Card("GPU-11aa-0000"), Card("GPU-11bb-0000"), Card("MIG-22cc-0000")};
  for (const char* uuid : {"GPU-11bb-0000", "gpu-11BB-0000", "11bb", "GPU-11b"}) {
    const Result<ProbedDevice> probed = Probe(driver, uuid);
    ASSERT_TRUE(probed.ok()) << uuid << ": " << probed.status().ToString();
    EXPECT_EQ(probed->ordinal, 1);
  }
  EXPECT_EQ(Probe(driver, "MIG-22cc-0000")->ordinal, 2);
}

TEST(Probe, WhatCannotBeUsedIsRefusedWithTheReason) {
  using Driver = PlayedDriver;
  // What `change` makes of a driver with two good devices.
  const auto expect = [](const char* uuid, Code code, std::vector<const char*> words, auto change) {
    Driver driver;
    driver.devices = {Card("GPU-11"), Card("GPU-22")};
    change(driver);
    for (const char* word : words) ExpectError(driver, uuid, code, HasSubstr(word));
  };
  constexpr Code kNone = Code::kNotFound, kBad = Code::kFailedPrecondition;
  expect("", kNone, {"there is no NVIDIA driver", "--device cpu"},
         [](Driver& driver) { driver.driver_version = 0; });
  expect("", kBad, {"cudaErrorUnknown"}, [](Driver& driver) {
    driver.version_answer = {999, "cudaErrorUnknown (unknown)"};
  });
  expect("", kBad, {"driver 550.54 knows CUDA 12.4", "needs CUDA 13", "580 or newer", "nvcc 12.x"},
         [](Driver& driver) { driver.driver_version = 12040, driver.release = "550.54"; });
  // The number of devices is not read where it was not written.
  expect("", kNone, {"no GPU: cudaErrorNoDevice", "CUDA_VISIBLE_DEVICES"}, [](Driver& driver) {
    driver.count_answer = {100, "cudaErrorNoDevice (none)"};
  });
  expect("", kNone, {"no GPU: look at CUDA_VISIBLE_DEVICES"},
         [](Driver& driver) { driver.devices.clear(); });
  expect("GPU-33", kNone, {"no GPU GPU-33", "GPU-11, GPU-22"}, [](Driver&) {});
  expect("GPU-11", kNone, {"fits 2 GPUs of GPU-1111, GPU-1122"}, [](Driver& driver) {
    driver.devices = {Card("GPU-1111"), Card("GPU-1122")};
  });
  expect("", kBad, {"Card (GPU-11) has compute capability 7.0", "7.5"},
         [](Driver& driver) { driver.devices[0].compute_capability = 70; });
  expect("", kBad, {"compute mode 'prohibited'"},
         [](Driver& driver) { driver.devices[0].prohibited = true; });
  expect("", kBad, {"one address space"},
         [](Driver& driver) { driver.devices[0].unified_addressing = false; });
  expect("", kBad, {"cudaErrorInvalidDevice"}, [](Driver& driver) { driver.broken_device = 0; });
  expect("GPU-11", kNone, {"it sees GPU-22", "cudaErrorInvalidDevice"},
         [](Driver& driver) { driver.broken_device = 0; });
}

TEST(Probe, BrokenDeviceHidesOnlyItself) {
  PlayedDriver driver;
  driver.devices = {Card("GPU-11"), Card("GPU-22")};
  driver.broken_device = 0;
  EXPECT_TRUE(Probe(driver, "GPU-22").ok());
}

// What goes away by itself is no missing GPU.
TEST(Probe, WhatIsNotReadyYetIsUnavailable) {
  for (const int error : {46, 802, 805, 806, 807, 808, 809}) {
    SCOPED_TRACE(error);
    PlayedDriver driver;
    driver.devices = {Card("GPU-11"), Card("GPU-22")};
    driver.count_answer = {error, "cudaErrorMpsServerNotReady (not ready)"};
    ExpectError(driver, "", Code::kUnavailable,
                AllOf(HasSubstr("gives no GPU yet: cudaErrorMpsServerNotReady"),
                      HasSubstr("start the task again")));
    EXPECT_EQ(ProbePeer(driver, 0, "GPU-11", "GPU-22").status().code(), Code::kUnavailable);
    driver.count_answer = {};
    driver.version_answer = {error, "not yet"};
    ExpectError(driver, "", Code::kUnavailable, HasSubstr("gives no GPU yet: not yet"));
    driver.version_answer = {};
    driver.broken_device = 0;
    driver.broken_error = error;
    ExpectError(driver, "GPU-22", Code::kUnavailable, HasSubstr("gives no GPU yet"));
  }
}

TEST(ErrorClass, SaysWhatBecomesOfTheTask) {
  const std::set<int> later = {46, 802, 805, 806, 807, 808, 809};
  const std::set<int> lost = {214, 220, 700, 702, 709, 710, 714, 715,
                              716, 717, 718, 719, 721, 810, 911, 999};
  for (int error = 1; error < 1100; ++error) {
    SCOPED_TRACE(error);
    const Status status = StatusOfError(error, "it failed");
    const bool again = later.contains(error) || lost.contains(error);
    EXPECT_EQ(status.code(), again        ? Code::kUnavailable
                             : error == 2 ? Code::kResourceExhausted
                                          : Code::kInternal);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("it failed"),
                      HasSubstr(later.contains(error)  ? "takes nobody now: start the task again"
                                : lost.contains(error) ? "cannot use the GPU any more: start the "
                                                         "task again"
                                                       : "")));
  }
}

TEST(Probe, NewerDriverOfTheSameOrALaterMajorVersionWillDo) {
  PlayedDriver driver;
  driver.devices = {Card("GPU-11")};
  for (const int version : {13000, 13020, 14000}) {
    driver.driver_version = version;
    EXPECT_TRUE(Probe(driver, "").ok()) << version;
  }
}

// The first is the worker's own, as CUDA_VISIBLE_DEVICES has it.
TEST(ProbePeer, FindsTheGpuInWhoseMemoryOneCanWork) {
  PlayedDriver driver;
  driver.devices = {Card("GPU-11"), Card("GPU-22"), Card("GPU-33")};
  const Result<int> peer = ProbePeer(driver, 0, "GPU-11", "GPU-33");
  ASSERT_TRUE(peer.ok()) << peer.status().message();
  EXPECT_EQ(*peer, 2);
  EXPECT_EQ(driver.asked_about, (std::pair{0, 2}));
}

TEST(ProbePeer, NamesBothGpusAndWhatIsMissing) {
  PlayedDriver driver;
  driver.devices = {Card("GPU-11"), Card("GPU-22")};
  const auto expect = [&](const std::string& own, const std::string& home, const char* what) {
    const Status status = ProbePeer(driver, 0, own, home).status();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(what), Not(HasSubstr(". "))));
  };
  driver.peer_facts = {true, true, false};
  expect("GPU-11", "GPU-22",
         "GPU GPU-11 cannot do atomic operations on the memory of GPU GPU-22, which holds");
  driver.peer_facts = {false, false, false};
  expect("GPU-11", "GPU-22", "GPU GPU-11 cannot access the memory of GPU GPU-22");
  driver.peer_facts = {true, false, true};
  expect("GPU-11", "GPU-22", "GPU GPU-11 cannot access the memory of GPU GPU-22");
  driver.peer_facts = {true, true, true};
  driver.peer_answer = {101, "cudaErrorInvalidDevice (invalid device ordinal)"};
  expect("GPU-11", "GPU-22", "GPU GPU-11 gets no answer (cudaErrorInvalidDevice");
  driver.peer_answer = {};
  expect("GPU-11", "GPU-44",
         "does not see GPU GPU-44, which holds the parameters (this process "
         "sees GPU-11, GPU-22)");
  expect("MIG-55", "GPU-22", "MIG-55 is a MIG instance");
  expect("GPU-11", "MIG-66", "MIG-66 is a MIG instance");
  driver.broken_device = 1;
  expect("GPU-11", "GPU-22", "sees GPU-11)");
  driver.count_answer = {100, "cudaErrorNoDevice (no CUDA-capable device is detected)"};
  expect("GPU-11", "GPU-22", "does not say which GPUs there are: cudaErrorNoDevice");
}

TEST(Probe, ReadsTheReleaseFromTheDriversOwnText) {
  EXPECT_EQ(ParseDriverRelease("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
                               "580.159.03  Release Build  (dvs-builder@U22)\nGCC version:  gcc "
                               "version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"),
            "580.159.03");
  EXPECT_EQ(ParseDriverRelease("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue"),
            "535.54.03");
  EXPECT_EQ(ParseDriverRelease(""), "");
  EXPECT_EQ(ParseDriverRelease("no number here"), "");
}

}  // namespace
}  // namespace passel::cuda

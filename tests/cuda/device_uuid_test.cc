#include "cuda/device_uuid.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace passel::cuda {
namespace {

constexpr char kGpu[] = "280a6446-a082-ecce-280a-6446a082ecce";  // of h100-mig.json
constexpr char kInstance[] = "8e60caac-06e8-4224-8e60-caac06e84224";
constexpr char kWhole[] = "b9c0ffee-0000-4000-8000-0123456789ab";  // nobody knows it

UuidBytes UuidOf(const std::string& text) {
  UuidBytes bytes{};
  std::string digits;
  for (const char c : text) {
    if (c != '-') digits += c;
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  }
  return bytes;
}

// With the fake NVML, which answers from the recorded topology.
class DeviceUuidTest : public testing::Test {
 protected:
  DeviceUuidTest() {
    ::setenv("PASSEL_FAKE_NVML", PASSEL_SOURCE_DIR "/tests/data/topologies/h100-mig.json", 1);
  }
  ~DeviceUuidTest() override {
    ::unsetenv("PASSEL_FAKE_NVML");
    ::unsetenv("PASSEL_FAKE_NVML_INIT");
  }
};

// Every answer of the driver, of CUDA_VISIBLE_DEVICES and of NVML to an instance. It is taken for a
// whole GPU only where nobody tells.
TEST_F(DeviceUuidTest, AnInstanceIsRecognisedByWhoeverTells) {
  const std::string named = std::string("MIG-") + kInstance;
  enum class Driver { kSilent, kTellsOwn };
  enum class Runtime { kOwn, kOfItsGpu };
  for (const Runtime runtime : {Runtime::kOwn, Runtime::kOfItsGpu}) {
    for (const Driver driver : {Driver::kSilent, Driver::kTellsOwn}) {
      for (const std::string& visible : {std::string(), named, std::string("MIG-8e60"),
                                         std::string("MIG-GPU-280a6446/1/0"), std::string("0")}) {
        for (const char* nvml : {PASSEL_FAKE_NVML_LIBRARY, "/nowhere/libnvidia-ml.so.1"}) {
          SCOPED_TRACE(testing::Message() << static_cast<int>(runtime) << static_cast<int>(driver)
                                          << " '" << visible << "' " << nvml);
          DeviceUuidFacts facts;
          facts.runtime = UuidOf(runtime == Runtime::kOwn ? kInstance : kGpu);
          if (driver == Driver::kTellsOwn) facts.driver = UuidOf(kInstance);
          facts.visible = visible;
          facts.nvml = nvml;
          const bool own_known = runtime == Runtime::kOwn || driver == Driver::kTellsOwn;
          const bool told = visible.starts_with("MIG-") ||
                            (runtime == Runtime::kOfItsGpu && driver == Driver::kTellsOwn) ||
                            (own_known && nvml == std::string(PASSEL_FAKE_NVML_LIBRARY));
          // In this topology the seventh instance has the bytes of the GPU, so that one is known.
          const bool of_gpu = !own_known && nvml == std::string(PASSEL_FAKE_NVML_LIBRARY);
          EXPECT_EQ(DeviceUuid(facts),
                    std::string(told || of_gpu ? "MIG-" : "GPU-") + (own_known ? kInstance : kGpu));
        }
      }
    }
  }
}

TEST_F(DeviceUuidTest, AWholeGpuIsNone) {
  for (const bool driver : {false, true}) {
    for (const char* visible : {"", "0", "GPU-b9c0ffee", "0,MIG-8e60caac"}) {
      DeviceUuidFacts facts;
      facts.runtime = UuidOf(kWhole);
      if (driver) facts.driver = facts.runtime;
      facts.visible = visible;
      facts.nvml = PASSEL_FAKE_NVML_LIBRARY;
      EXPECT_EQ(DeviceUuid(facts), std::string("GPU-") + kWhole) << visible;
    }
  }
}

TEST_F(DeviceUuidTest, TheEntryOfTheDeviceCounts) {
  DeviceUuidFacts facts;
  facts.runtime = UuidOf(kWhole);
  facts.nvml = PASSEL_FAKE_NVML_LIBRARY;
  const auto is_instance = [&](const char* visible, int ordinal) {
    facts.visible = visible;
    facts.ordinal = ordinal;
    return DeviceUuid(facts).starts_with("MIG-");
  };
  EXPECT_TRUE(is_instance("0, MIG-8e60caac", 1));
  EXPECT_FALSE(is_instance("MIG-8e60caac,1", 1));
  EXPECT_FALSE(is_instance("MIG-8e60caac", 1)) << "there is no such entry";
}

TEST_F(DeviceUuidTest, NvmlThatCannotBeAskedKnowsNone) {
  const std::string instance = std::string("MIG-") + kInstance;
  EXPECT_TRUE(IsMigInstance(PASSEL_FAKE_NVML_LIBRARY, instance));
  EXPECT_TRUE(IsMigInstance(PASSEL_FAKE_NVML_LIBRARY, instance)) << "again";
  EXPECT_FALSE(IsMigInstance(PASSEL_FAKE_NVML_LIBRARY, std::string("GPU-") + kGpu));
  EXPECT_FALSE(IsMigInstance(PASSEL_FAKE_NVML_LIBRARY, std::string("MIG-") + kWhole));
  EXPECT_FALSE(IsMigInstance("libm.so.6", instance)) << "another library";
  ::setenv("PASSEL_FAKE_NVML_INIT", "9", 1);
  EXPECT_FALSE(IsMigInstance(PASSEL_FAKE_NVML_LIBRARY, instance));
}

}  // namespace
}  // namespace passel::cuda

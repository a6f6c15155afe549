// GPUs of tasks, device strings.

#include "cluster/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace passel {
namespace {

using ::testing::StartsWith;

TEST(DeviceTest, TasksShareTheGpusInTurn) {
  const int expected[] = {0, 1, 2, 0, 1, 2, 0};
  for (int task = 0; task < 7; ++task) EXPECT_EQ(*GpuOfTask(task, 3), expected[task]);
  EXPECT_EQ(*GpuOfTask(5, 1), 0);
  EXPECT_EQ(*GpuOfTask(5, 0), std::nullopt);
  EXPECT_EQ(GpuOfTask(0, -1).status().message(),
            "--num_gpus is -1: use the number of GPUs, or 0 for the CPU");
}

TEST(DeviceTest, AGpuForEachWorkerIsCheckedInTheWordsOfTheReferenceProgram) {
  EXPECT_TRUE(CheckGpuPerWorker(2, 2).ok());
  EXPECT_TRUE(CheckGpuPerWorker(3, 2).ok());
  EXPECT_TRUE(CheckGpuPerWorker(0, 2).ok());
  EXPECT_EQ(CheckGpuPerWorker(1, 2).message(), "number of gpus is less than number of workers");
}

TEST(DeviceTest, StringsAreParsedIntoOneForm) {
  for (const auto& [text, canonical] : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"/job:ps/task:0", "/job:ps/task:0"},
           {"/task:0/job:ps", "/job:ps/task:0"},
           {"/job:worker/replica:0/task:12/gpu:3", "/job:worker/replica:0/task:12/gpu:3"},
           {"/job:worker/replica:0/task:1/device:GPU:0", "/job:worker/replica:0/task:1/gpu:0"},
           {"/device:CPU:0", "/cpu:0"},
           {"/cpu", "/cpu"},
           {"/gpu:*", "/gpu"},
       }) {
    const auto device = ParseDevice(text);
    ASSERT_TRUE(device.ok()) << text;
    EXPECT_EQ(device->ToString(), canonical);
    EXPECT_EQ(*ParseDevice(canonical), *device);
  }
  for (const std::string text :
       {"/",        "job:ps",         "/job:",           "/job:9",   "/job:a/job:a",
        "/task:-1", "/task:",         "/task:1/task:1",  "/task:x",  "/gpu:",
        "/gpu:-1",  "/gpu0",          "/gpu:0/cpu:0",    "/tpu:0",   "/device:gpu:0",
        "/GPU:0",   "/device:TPU:0",  "/job:ps//task:0", "/job:ps/", "/replica:100000",
        "\xff",     "/job:ps/task:0 "}) {
    const auto device = ParseDevice(text);
    EXPECT_EQ(device.status().code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(device.status().message(), ::testing::HasSubstr("is not a device")) << text;
  }
}

TEST(DeviceTest, FiltersMatchWhatTheyName) {
  const auto matches = [](std::string_view device, std::string_view filter) {
    return MatchesFilter(*ParseDevice(device), *ParseDevice(filter));
  };
  EXPECT_TRUE(matches("/job:ps/task:3", "/job:ps"));
  EXPECT_TRUE(matches("/job:worker/task:1", "/job:worker/task:1"));
  EXPECT_FALSE(matches("/job:worker/task:2", "/job:worker/task:1"));
  EXPECT_FALSE(matches("/job:worker/task:1", "/job:ps"));
  EXPECT_FALSE(matches("/job:worker", "/job:worker/task:0"));
  EXPECT_TRUE(matches("/job:worker/task:0/gpu:1", ""));
  EXPECT_FALSE(matches("/gpu:0", "/cpu:0"));
}

}  // namespace
}  // namespace passel

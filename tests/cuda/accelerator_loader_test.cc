#include "compute/accelerator_loader.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compute/build_id.h"

namespace passel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kPlugin = PASSEL_TEST_PLUGIN;

// $PASSEL_BACKEND_PATH, and a folder, for the time of one test.
class AcceleratorLoader : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/passel_loader_XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    folder_ = path;
    SetVariable("");
  }
  void TearDown() override {
    SetVariable("");
    std::filesystem::remove_all(folder_);
  }
  static void SetVariable(const std::string& value) {
    if (value.empty()) {
      unsetenv("PASSEL_BACKEND_PATH");
    } else {
      setenv("PASSEL_BACKEND_PATH", value.c_str(), 1);
    }
  }
  static Status OpenStatus(const std::string& plugin, const std::string& uuid = "") {
    SetVariable(plugin);
    AcceleratorOptions options;
    options.uuid = uuid;
    return OpenAccelerator(options).status();
  }
  // A copy of the plugin under that name in the folder.
  std::string Copied(const std::string& name) {
    std::filesystem::copy(kPlugin, folder_ + "/" + name);
    return folder_ + "/" + name;
  }
  std::string folder_;
};

TEST_F(AcceleratorLoader, OpensADeviceWithWhatTheCallerAskedFor) {
  SetVariable(kPlugin);
  AcceleratorOptions options;
  options.uuid = "GPU-7";
  options.memory_fraction = 0.25;
  ::testing::internal::CaptureStderr();
  const Result<std::unique_ptr<Accelerator>> accelerator = OpenAccelerator(options);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the test plugin opens"));
  ASSERT_TRUE(accelerator.ok()) << accelerator.status().ToString();
  EXPECT_EQ((*accelerator)->info().uuid, "GPU-7");
  EXPECT_EQ((*accelerator)->info().memory_bytes, 250u);
  EXPECT_EQ((*accelerator)->CreateStepEngine({}).status().code(), Code::kInvalidArgument);
}

TEST_F(AcceleratorLoader, HandsThePluginsOwnErrorOn) {
  const Status status = OpenStatus(kPlugin, "GPU-none");
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.message(), "there is no such test device");
}

TEST_F(AcceleratorLoader, LoadsAPluginOnce) {
  const Result<const AcceleratorPlugin*> first = LoadAcceleratorPlugin(kPlugin);
  const Result<const AcceleratorPlugin*> second = LoadAcceleratorPlugin(kPlugin);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(*first, *second);
}

TEST_F(AcceleratorLoader, FindsThePluginInAFolderThatTheVariableNames) {
  Copied("libpassel_cuda.so");
  EXPECT_TRUE(OpenStatus(folder_).ok());
}

TEST_F(AcceleratorLoader, RefusesARelativePath) {
  for (const char* path : {"libpassel_cuda.so", "./x", "lib/passel"}) {
    const Status status = OpenStatus(path);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), StartsWith(std::string("PASSEL_BACKEND_PATH is '") + path + "'"));
    EXPECT_THAT(status.message(), HasSubstr("absolute path"));
  }
  setenv("PASSEL_BACKEND_PATH", "", 1);
  EXPECT_EQ(FindAcceleratorPlugin().status().code(), Code::kInvalidArgument);
  EXPECT_EQ(LoadAcceleratorPlugin("x.so").status().code(), Code::kInvalidArgument);
}

TEST_F(AcceleratorLoader, NeverLooksIntoTheWorkingFolder) {
  Copied("libpassel_cuda.so");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  const Result<std::string> found = FindAcceleratorPlugin();
  std::filesystem::current_path(before);
  if (found.ok()) {
    EXPECT_THAT(*found, AllOf(StartsWith("/"), Not(HasSubstr(folder_))));
  } else {
    EXPECT_EQ(found.status().code(), Code::kNotFound);
  }
}

TEST_F(AcceleratorLoader, WithoutTheVariableItLooksBesideTheProgram) {
  const Result<std::string> found = FindAcceleratorPlugin();
#if defined(PASSEL_TEST_REAL_PLUGIN)
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_TRUE(std::filesystem::equivalent(*found, PASSEL_TEST_REAL_PLUGIN)) << *found;
#else
  EXPECT_EQ(found.status().code(), Code::kNotFound);
  EXPECT_THAT(found.status().message(), AllOf(StartsWith("there is no GPU plugin /"),
                                              HasSubstr("nvcc"), HasSubstr("docs/gpus.md")));
#endif
}

TEST_F(AcceleratorLoader, SaysThatAFileIsMissing) {
  const Status status = OpenStatus(folder_ + "/nothing.so");
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(folder_ + "/nothing.so"), HasSubstr("there is no GPU plugin"),
                    HasSubstr("PASSEL_BACKEND_PATH")));
}

TEST_F(AcceleratorLoader, RefusesWhatIsNoLibrary) {
  const std::string path = folder_ + "/text.so";
  std::ofstream(path) << "not a library";
  const Status status = OpenStatus(path);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("cannot be loaded"));
  const std::string pipe = folder_ + "/pipe.so";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(OpenStatus(pipe).message(), HasSubstr("not a regular file"));
}

TEST_F(AcceleratorLoader, RefusesWhatIsNotItsPlugin) {
  const std::string both = "build both together";
  for (const auto& [plugin, text] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {PASSEL_FAKE_NVML_LIBRARY, {"is no GPU plugin"}},
           {Copied("abi.so"), {"speaks version 999", both}},
           {Copied("build.so"), {"is of build 0.0.0-other", BuildId(), both}},
           {Copied("open.so"), {"has no function to open a device"}}}) {
    const Status status = OpenStatus(plugin);
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    for (const std::string& words : text) EXPECT_THAT(status.message(), HasSubstr(words));
  }
}

TEST_F(AcceleratorLoader, RefusesAFileThatEverybodyMayWriteTo) {
  const std::string path = Copied("writable.so");
  ASSERT_EQ(chmod(path.c_str(), 0757), 0);
  const Status status = OpenStatus(path);
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("mode 0757"), HasSubstr("chmod o-w")));
}

TEST_F(AcceleratorLoader, RefusesSomebodyElsesFile) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const std::string path = Copied("foreign.so");
  ASSERT_EQ(chown(path.c_str(), 54321, 54321), 0);
  struct stat self {};
  ASSERT_EQ(stat("/proc/self/exe", &self), 0);
  if (self.st_uid == 54321) GTEST_SKIP() << "the program belongs to the same user";
  const Status status = OpenStatus(path);
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr("belongs to user 54321"));
}

TEST_F(AcceleratorLoader, BuildIdNamesVersionAndFingerprint) {
  EXPECT_THAT(BuildId(), ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+-[0-9a-f]{16}"));
}

#if defined(PASSEL_TEST_REAL_PLUGIN)
TEST_F(AcceleratorLoader, ThePluginSaysInOneSentenceThatThereIsNoDriver) {
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr) {
    GTEST_SKIP() << "this machine has an NVIDIA driver";
  }
  for (int again = 0; again < 2; ++again) {
    const Status status = OpenStatus(PASSEL_TEST_REAL_PLUGIN);
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_THAT(status.message(),
                AllOf(StartsWith("there is no NVIDIA driver: "), HasSubstr("--device cpu")));
    EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
  }
}
#endif

}  // namespace
}  // namespace passel

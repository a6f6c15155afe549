// Where cuBLASLt is looked for.

#include "cuda/cublaslt_functions.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace passel::cuda {
namespace {

TEST(CublasLtPlaces, AreTheLoadersThenThoseOfToolkitsTheNewestFirst) {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  std::string local = testing::TempDir() + "cublaslt_places_XXXXXX";
  ASSERT_NE(::mkdtemp(local.data()), nullptr);
  EXPECT_THAT(CublasLtPlaces(local),
              testing::ElementsAre(name, local + "/cuda/lib64/" + name,
                                   local + "/cuda/targets/x86_64-linux/lib/" + name));
  for (const char* folder : {"cuda", "cuda-13.9", "cuda-13.10", "cuda-12.8", "cudnn-9", "bin"}) {
    std::filesystem::create_directory(local + "/" + folder);
  }
  EXPECT_THAT(CublasLtPlaces(local),
              testing::ElementsAre(name, local + "/cuda/lib64/" + name,
                                   local + "/cuda/targets/x86_64-linux/lib/" + name,
                                   local + "/cuda-13.10/targets/x86_64-linux/lib/" + name,
                                   local + "/cuda-13.9/targets/x86_64-linux/lib/" + name,
                                   local + "/cuda-12.8/targets/x86_64-linux/lib/" + name));
  std::filesystem::remove_all(local);
  EXPECT_EQ(CublasLtPlaces(local).size(), 3u);
}

}  // namespace
}  // namespace passel::cuda

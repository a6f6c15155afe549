// Each call that tasks make to get their memory and to meet fails in turn: a job ends with its work
// done or with one sentence, and leaves nothing. tests/support/fault_shim.cc says how they fail.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "support/program.h"
#include "support/sanitized.h"

namespace passel::testing {
namespace {

using ::testing::AnyOf;

struct AttachFault {
  const char* call;
  int error;
  int most;  // calls of one process that are looked at
};

constexpr AttachFault kAttachFaults[] = {
    {"memfd_create", EMFILE, 20}, {"fallocate", ENOSPC, 20},   {"fallocate", ENOMEM, 20},
    {"fallocate", EINTR, 20},     {"mmap", ENOMEM, 60},        {"bind", ENOMEM, 10},
    {"connect", EINTR, 20},       {"connect", EACCES, 20},     {"accept4", EMFILE, 20},
    {"accept4", EINTR, 20},       {"sendmsg", EINTR, 40},      {"sendmsg", ENOMEM, 40},
    {"recvmsg", EINTR, 40},       {"recvmsg", ECONNRESET, 40}, {"futex", EINTR, 40},
};

// Of each process the `first` of its calls and every `stride`th after it; if it makes very many,
// those that are each by `growth` further.
void FailWhileTheyMeet(const AttachFault& fault, int first, int stride, double growth = 0) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer has these calls for itself";
  int hits = 0;
  for (int call = first; call <= fault.most; call += stride + static_cast<int>(growth * call)) {
    SCOPED_TRACE(fmt::format("{}, call {}, {}", fault.call, call, std::strerror(fault.error)));
    Sandbox sandbox;
    const std::string log = sandbox.dir().path() + "/hits";
    sandbox.SetEnv("LD_PRELOAD", PASSEL_FAULT_SHIM);
    sandbox.SetEnv("PASSEL_FAULT", fmt::format("{}:{}:{}", fault.call, call, fault.error));
    sandbox.SetEnv("PASSEL_FAULT_LOG", log);
    const Outcome end = sandbox.Run(
        sandbox.Train({"--mode=barrier", "--hidden_units=16", "--batch_size=20", "--train_steps=50",
                       "--start_wait=5", "--grace=3", "--save=" + log + ".model"}),
        30);
    ASSERT_THAT(end.code, AnyOf(0, 1, 2, 143)) << end.err;
    EXPECT_LE(end.errors.size(), 1u) << end.err;
    if (end.code == 1 || end.code == 2) {
      EXPECT_EQ(end.errors.size(), 1u) << end.err;
    }
    EXPECT_EQ(sandbox.Leftovers(), "");
    if (!std::filesystem::exists(log)) break;
    ++hits;
  }
  if (first == 1) {
    EXPECT_GT(hits, 0) << fault.call;
  }
}

TEST(AttachFaultTest, WhateverCallFailsAJobEndsInOrder) {
  const int seed = static_cast<int>(TestSeed() % 8);
  for (const AttachFault& fault : kAttachFaults) FailWhileTheyMeet(fault, 1 + seed, 12);
}

// Some tens of the first ones are of libraries, before main().
TEST(AttachFaultTest, WhereverMemoryEndsAJobEndsInOrder) {
  FailWhileTheyMeet({"new", ENOMEM, 1'000'000}, 200 + static_cast<int>(TestSeed() % 100), 1, 0.4);
}
TEST(SlowAttachFaultTest, WhereverMemoryEndsAJobEndsInOrder) {
  FailWhileTheyMeet({"new", ENOMEM, 1'000'000}, 100, 1, 0.01);
}

TEST(SlowAttachFaultTest, WhateverCallFailsAJobEndsInOrder) {
  for (const AttachFault& fault : kAttachFaults) FailWhileTheyMeet(fault, 1, 1);
}

}  // namespace
}  // namespace passel::testing

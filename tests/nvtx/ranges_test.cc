// src/base/nvtx.h in this process: what it says before a tool is there, and when one is.

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>

#include "base/nvtx.h"
#include "nvtx/nvtx_job.h"

namespace {
std::size_t g_allocations = 0;
}  // namespace

// Every allocation of this program is counted. Not inlined: g++ 12 would take malloc() and delete
// for a mismatch.
__attribute__((noinline)) void* operator new(std::size_t size) {
  ++g_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace passel::testing {
namespace {

using nvtx::Event;
using nvtx::Range;
using nvtx::Span;

// Attaches the recorder to this process, which each test has for itself under ctest. A second test
// in one process would find the first one's file.
std::string Attach(TempDir& dir) {
  if (nvtx::Attached()) return {};
  const std::string path = dir.File("record");
  ::setenv("NVTX_INJECTION64_PATH", PASSEL_NVTX_RECORDER, 1);
  ::setenv("PASSEL_NVTX_RECORD", path.c_str(), 1);
  nvtx::Initialize();
  return path;
}

TEST(NvtxRangesTest, DoNothingBeforeInitialize) {
  if (nvtx::Attached()) GTEST_SKIP() << "another test of this process has attached the recorder";
  const std::size_t before = g_allocations;
  for (int i = 0; i < 1000; ++i) {
    const Range range(Event::kStep, i);
    Span span(Event::kRound, i);
    nvtx::Mark(Event::kWorkerDied, i);
  }
  EXPECT_EQ(g_allocations, before);
}

TEST(NvtxRangesTest, CloseInOrderWhateverEndsTheScope) {
  TempDir dir;
  const std::string path = Attach(dir);
  if (path.empty()) GTEST_SKIP() << "another test of this process has attached the recorder";
  const std::size_t before = g_allocations;
  const auto early_return = [](bool leave) {
    const Range range(Event::kPull, 1);
    if (leave) return;
    const Range inner(Event::kPush, 1);
  };
  early_return(true);
  early_return(false);
  try {
    const Range outer(Event::kStep, 2);
    const Range inner(Event::kCompute, 2);
    throw std::runtime_error("an error");
  } catch (const std::runtime_error&) {
  }
  {
    Range closed(Event::kPull, 3);
    closed.Close();
    closed.Close();
    const Range after(Event::kCompute, 3);
  }
  nvtx::Mark(Event::kNotFinite, -5);
  EXPECT_LE(g_allocations, before + 1) << "beyond the exception nothing is allocated";
  const Recording recording(path);
  CheckWellFormed(recording);
  ASSERT_EQ(recording.threads().size(), 1u);
  const Thread& thread = recording.threads().begin()->second;
  EXPECT_EQ(thread.open, 0);
  ASSERT_EQ(thread.ranges.size(), 7u);
  EXPECT_EQ(thread.Children(thread.ranges[1]), "push");
  EXPECT_EQ(thread.Children(thread.ranges[3]), "compute");
  EXPECT_EQ(thread.ranges[6].parent, -1) << "a closed range has no children";
  ASSERT_EQ(recording.Marks("not_finite").size(), 1u);
  EXPECT_EQ(recording.Marks("not_finite")[0].payload, -5);
  nvtx::Initialize();
  EXPECT_EQ(Recording(path).Calls("domain_create").size(), 1u) << "once is enough";
}

TEST(NvtxRangesTest, SpansEndOnceAndInAnyThread) {
  TempDir dir;
  const std::string path = Attach(dir);
  if (path.empty()) GTEST_SKIP() << "another test of this process has attached the recorder";
  Span first(Event::kRound, 1);
  Span second(Event::kRound, 2);
  std::thread other([span = std::move(first)]() mutable {
    nvtx::NameThread("other");
    span.End();
    span.End();
  });
  other.join();
  second = Span(Event::kRound, 3);  // ends the one it held
  Span third = std::move(second);
  second.End();  // it holds nothing any more
  third.End();
  const Recording recording(path);
  CheckWellFormed(recording);
  const std::vector<Call> starts = recording.Calls("start");
  const std::vector<Call> ends = recording.Calls("end");
  ASSERT_EQ(starts.size(), 3u);
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_EQ(ends[0].id, starts[0].id);
  EXPECT_NE(ends[0].tid, starts[0].tid);
  EXPECT_EQ(ends[1].id, starts[1].id);
  EXPECT_EQ(ends[2].id, starts[2].id);
  EXPECT_EQ(recording.ThreadNames(), std::vector<std::string>{"other"});
}

}  // namespace
}  // namespace passel::testing

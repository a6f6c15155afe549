#include "io/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <condition_variable>
#include <csignal>
#include <limits>
#include <mutex>

#include "base/clock.h"
#include "support/failing_ops.h"
#include "support/read_events.h"
#include "support/temp_dir.h"

namespace passel {
namespace {

using test::EventFilesIn;
using test::ReadEvents;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

constexpr double kNow = 1700000000.75;

Event ScalarAt(std::int64_t step) {
  return {kNow + static_cast<double>(step), step,
          Summary{{"loss", 1.0 / static_cast<double>(step)}}};
}

std::vector<std::int64_t> StepsOf(const std::vector<event::Event>& events) {
  std::vector<std::int64_t> steps;
  for (const event::Event& event : events) steps.push_back(event.step());
  return steps;
}

class EventFileTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<EventFile>> Create(FileOps& ops = FileOps::Real(), double now = kNow) {
    options_.on_problem = [this](const std::string& sentence) {
      const std::lock_guard lock(mutex_);
      problems_.push_back(sentence);
    };
    return EventFile::Create(folder_, now, options_, ops);
  }
  // Waits until the file holds so many events.
  static bool Holds(const std::string& path, std::size_t events) {
    for (int i = 0; i < 2000; ++i) {
      std::size_t rest = 0;
      if (ReadEvents(path, &rest).size() == events && rest == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  const test::TempDir dir_;
  const std::string folder_ = dir_.path() + "/logs/of/job";
  EventFileOptions options_;
  std::mutex mutex_;
  std::vector<std::string> problems_;  // read when the file is closed
};

TEST_F(EventFileTest, HoldsTheVersionAndThenEverythingInOrder) {
  auto file = Create().value();
  EXPECT_THAT(file->path(),
              MatchesRegex(".*/logs/of/job/events\\.out\\.tfevents\\.1700000000\\..+"));
  // The first record is there at once.
  EXPECT_THAT(StepsOf(ReadEvents(file->path())), ElementsAre(0));
  for (std::int64_t step = 1; step <= 7; ++step) EXPECT_TRUE(file->Add(ScalarAt(step)));
  file->Close();
  const auto events = ReadEvents(file->path());
  EXPECT_THAT(StepsOf(events), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[0].wall_time(), 1700000000);
  EXPECT_EQ(events[4].wall_time(), kNow + 4);
  EXPECT_EQ(events[4].summary().value(0).simple_value(), 0.25F);
  EXPECT_FALSE(file->Add(ScalarAt(8)));
  EXPECT_EQ(file->dropped(), 1u);
  EXPECT_THAT(problems_, IsEmpty());
}

TEST_F(EventFileTest, EachOneIsANewFileThatSortsLastEvenIfTheClockWasSetBack) {
  std::vector<std::string> paths;
  for (const double now : {kNow, kNow, kNow - 1000, kNow + 10}) {
    auto file = Create(FileOps::Real(), now).value();
    EXPECT_TRUE(file->Add(ScalarAt(1)));
    paths.push_back(file->path());
  }
  EXPECT_EQ(EventFilesIn(folder_), paths);
  EXPECT_THAT(paths[2], HasSubstr("tfevents.1700000002."));
  EXPECT_THAT(paths[3], HasSubstr("tfevents.1700000010."));
  // What has no such name, or one that no clock gives, does not count.
  for (const char* const name : {"events.out.tfevents.99999999999999999999.a",
                                 "events.out.tfevents.x", "events.out.tfevents.99999999999.b"}) {
    std::ofstream(folder_ + "/" + name) << "x";
  }
  EXPECT_THAT(Create(FileOps::Real(), kNow + 20).value()->path(), HasSubstr(".1700000020."));
}

TEST_F(EventFileTest, TheFirstEventIsWrittenAtOnceAndTheNextWhenTheTimeIsOver) {
  options_.flush_interval = options_.first_interval = std::chrono::hours(1);
  auto lazy = Create().value();
  EXPECT_TRUE(lazy->Add(ScalarAt(1)));
  EXPECT_TRUE(Holds(lazy->path(), 2));
  EXPECT_TRUE(lazy->Add(ScalarAt(2)));
  options_.flush_interval = std::chrono::milliseconds(20);
  auto quick = Create().value();
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_TRUE(quick->Add(ScalarAt(static_cast<std::int64_t>(i))));
    EXPECT_TRUE(Holds(quick->path(), i + 1));
  }
  EXPECT_TRUE(Holds(lazy->path(), 2));
  lazy->Close();
  EXPECT_TRUE(Holds(lazy->path(), 3));
}

// Who opens TensorBoard at the start sees the first points soon, and a long job writes seldom.
TEST_F(EventFileTest, TheFirstEventsAreThereSoonAndEachNextTimeIsTwiceAsLong) {
  options_.flush_interval = std::chrono::hours(1);
  options_.first_interval = std::chrono::milliseconds(20);
  auto file = Create().value();
  const std::int64_t begin_ns = MonotonicNs();
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(file->Add(ScalarAt(i + 1)));
    EXPECT_TRUE(Holds(file->path(), static_cast<std::size_t>(i) + 2));
    // 0, 20, 60, 140, 300, 620 ms.
    EXPECT_GE(MonotonicNs() - begin_ns, ((1 << i) - 1) * 20'000'000) << i;
  }
}

// A disk that answers when it is told to.
class SlowOps : public FileOps {
 public:
  int Write(int fd, const void* data, std::size_t bytes) override {
    std::unique_lock lock(mutex_);
    waiting_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    return FileOps::Write(fd, data, bytes);
  }
  void Answer(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    waiting_ = false;
    changed_.notify_all();
  }
  void AwaitWrite() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true, waiting_ = false;
};

TEST_F(EventFileTest, AQueueThatIsFullDropsAndCountsAndNobodyWaits) {
  SlowOps ops;
  auto file = Create(ops).value();
  ops.Answer(false);
  EXPECT_TRUE(file->Add(ScalarAt(1)));
  ops.AwaitWrite();  // the thread hangs in the first event
  for (std::int64_t step = 2; step <= 11; ++step) EXPECT_TRUE(file->Add(ScalarAt(step))) << step;
  EXPECT_FALSE(file->Add(ScalarAt(12)));
  EXPECT_FALSE(file->Add(ScalarAt(13)));
  EXPECT_EQ(file->dropped(), 2u);
  std::thread closer([&] { file->Close(ScalarAt(14)); });  // this one finds room
  ops.Answer(true);
  closer.join();
  EXPECT_THAT(StepsOf(ReadEvents(file->path())),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14));
}

TEST_F(EventFileTest, EveryCallThatFailsIsToldOfOnceAndWhatWasWrittenStands) {
  options_.flush_interval = std::chrono::nanoseconds(1);  // a write for each event
  // Calls: open, write (the version), write (1), write (2), write (3), close.
  for (int call = 1; call <= 6; ++call) {
    SCOPED_TRACE(call);
    problems_.clear();
    test::FailingOps ops(call, ENOSPC);
    const auto file = Create(ops);
    if (call <= 2) {
      EXPECT_THAT(std::string(file.status().message()),
                  ::testing::AllOf(HasSubstr(folder_), HasSubstr("No space left on device")));
      continue;
    }
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    for (std::int64_t step = 1; step <= 3; ++step) {
      (*file)->Add(ScalarAt(step));
      // Until it is written, or fails.
      std::size_t rest = 0;
      while ((*file)->dropped() == 0 &&
             ReadEvents((*file)->path(), &rest).size() <= std::size_t(step)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    (*file)->Close();
    std::size_t rest = 0;
    const auto events = ReadEvents((*file)->path(), &rest);
    const auto written = std::min<std::size_t>(static_cast<std::size_t>(call) - 2, 4);
    EXPECT_EQ(events.size(), written);
    EXPECT_EQ((*file)->dropped(), 4 - written);
    EXPECT_EQ(rest > 0, call < 6);  // half a record
    EXPECT_THAT(problems_, ElementsAre(::testing::AllOf(HasSubstr((*file)->path()),
                                                        HasSubstr("No space left on device"))));
  }
  // Those that could not be begun have left nothing; of the others each has its file.
  EXPECT_EQ(EventFilesIn(folder_).size(), 4u);
}

TEST_F(EventFileTest, AFileThatMayNotGrowEndsTheWriterNotTheProgram) {
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);  // as the program does
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1000, before.rlim_max};
  auto file = Create().value();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_TRUE(file->Add(ScalarAt(1)));
  EXPECT_TRUE(file->Add({kNow, 2, Summary{{"text", std::string(2000, 'x')}}}));
  file->Close();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  std::size_t rest = 0;
  EXPECT_GE(ReadEvents(file->path(), &rest).size(), 1u);
  EXPECT_THAT(problems_, ElementsAre(HasSubstr("File too large")));
  // Another life has a file of its own.
  auto next = Create().value();
  EXPECT_TRUE(next->Add(ScalarAt(3)));
  next->Close();
  EXPECT_THAT(StepsOf(ReadEvents(next->path())), ElementsAre(0, 3));
}

TEST_F(EventFileTest, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(dir_.path() + "/logs") << "a file";
  const auto file = Create();
  EXPECT_THAT(std::string(file.status().message()),
              ::testing::AllOf(HasSubstr("cannot make the folder"), HasSubstr(folder_)));
}

TEST_F(EventFileTest, WhatCannotBeEncodedIsToldOfOnce) {
  auto file = Create().value();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(file->Add({kNow, 1, Summary{{"a", 1.0}, {"a", 2.0}}}));
    EXPECT_TRUE(file->Add({kNow, 2, Summary{{"b", std::vector<float>{nan}}, {"loss", 1.0}}}));
  }
  file->Close();
  EXPECT_THAT(problems_, ElementsAre("Duplicate tag a found in summary inputs",
                                     "Nan in summary histogram for: b"));
  EXPECT_EQ(file->dropped(), 3u);
  EXPECT_THAT(StepsOf(ReadEvents(file->path())), ElementsAre(0, 2, 2, 2));
}

}  // namespace
}  // namespace passel

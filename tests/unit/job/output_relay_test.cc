// The last lines of each task, and that all of them reach our own output.

#include "job/output_relay.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/deadline.h"
#include "support/temp_dir.h"

namespace passel::job::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Lines = std::vector<std::string>;

// Our output and error in files while it lives: one file, or two.
class Captured {
 public:
  explicit Captured(bool one_file) {
    for (int fd : {STDOUT_FILENO, STDERR_FILENO}) saved_[fd - 1].Reset(::dup(fd));
    Redirect(STDOUT_FILENO, dir_.File("out"));
    if (one_file) {
      ::dup2(STDOUT_FILENO, STDERR_FILENO);
    } else {
      Redirect(STDERR_FILENO, dir_.File("err"));
    }
  }
  ~Captured() {
    for (int fd : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(saved_[fd - 1].get(), fd);
  }
  std::string Text(const std::string& name) const {
    std::string text(1 << 20, '\0');
    const FileDescriptor file(::open(dir_.File(name).c_str(), O_RDONLY | O_CLOEXEC));
    const ssize_t got = ::read(file.get(), text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
  }

 private:
  static void Redirect(int fd, const std::string& path) {
    const FileDescriptor file(
        ::open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
    ::dup2(file.get(), fd);
  }
  test::TempDir dir_;
  FileDescriptor saved_[2];
};

void Put(int fd, const std::string& text) {
  ASSERT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

std::unique_ptr<OutputRelay> NewRelay() {
  Result<std::unique_ptr<OutputRelay>> relay = OutputRelay::Create();
  EXPECT_TRUE(relay.ok()) << relay.status().message();
  return std::move(*relay);
}

OutputRelay::Ends Open(OutputRelay& relay, int task) {
  Result<OutputRelay::Ends> ends = relay.Open(task);
  EXPECT_TRUE(ends.ok()) << ends.status().message();
  return std::move(*ends);
}

Lines LastLines(OutputRelay& relay, int task) {
  relay.Settle(task, std::chrono::seconds(10));
  return relay.LastLines(task);
}

TEST(OutputRelay, APrefixIsBeforeEachLineOfOursAndNotKept) {
  const Captured captured(/*one_file=*/false);
  {
    const auto relay = NewRelay();
    Result<OutputRelay::Ends> ends = relay->Open(1, "worker/1: ");
    ASSERT_TRUE(ends.ok()) << ends.status().message();
    Put(ends->out.get(), "a\n\nb");
    Put(ends->err(), "c\n");
    EXPECT_THAT(LastLines(*relay, 1), ::testing::UnorderedElementsAre("a", "b", "c"));
  }
  EXPECT_EQ(captured.Text("out"), "worker/1: a\nworker/1: \nworker/1: b\n");
  EXPECT_EQ(captured.Text("err"), "worker/1: c\n");
}

TEST(OutputRelayTest, KeepsTheLastLinesOfEachTaskAndPassesAll) {
  for (const bool one_file : {true, false}) {
    SCOPED_TRACE(one_file);
    const Captured captured(one_file);
    auto relay = NewRelay();
    std::string all;
    {
      const OutputRelay::Ends first = Open(*relay, 0), second = Open(*relay, 7);
      EXPECT_EQ(first.err() == first.out.get(), one_file);
      EXPECT_THAT(LastLines(*relay, 0), IsEmpty());
      for (int i = 0; i < 50; ++i) {
        const std::string line = fmt::format("line {}\n", i);
        all += line;
        Put(first.out.get(), line);
      }
      Put(second.err(), "of another\n\nwithout its end");
      const Lines lines = LastLines(*relay, 0);
      ASSERT_EQ(lines.size(), OutputRelay::kLastLines);
      EXPECT_EQ(lines.front(), "line 10");
      EXPECT_EQ(lines.back(), "line 49");
      EXPECT_THAT(LastLines(*relay, 7), ElementsAre("of another", "without its end"));
      EXPECT_THAT(LastLines(*relay, 1), IsEmpty());
    }
    relay.reset();
    const std::string other = "of another\n\nwithout its end\n";
    if (one_file) {
      EXPECT_EQ(captured.Text("out").size(), (all + other).size());
    } else {
      EXPECT_EQ(captured.Text("out"), all);
      EXPECT_EQ(captured.Text("err"), other);
    }
  }
}

TEST(OutputRelayTest, CutsLongLinesAndRemovesControlCharacters) {
  const Captured captured(true);
  const auto relay = NewRelay();
  const OutputRelay::Ends ends = Open(*relay, 0);
  const std::string umlaut = "\xc3\xa4";
  Put(ends.out.get(), "red \x1b[31m\ttab\r\n");
  Put(ends.out.get(), std::string(499, 'x') + umlaut + "y\n");
  Put(ends.out.get(), std::string(498, 'x') + umlaut + "\n");
  Put(ends.out.get(), std::string(30'000, 'z') + "\n");
  EXPECT_THAT(LastLines(*relay, 0),
              ElementsAre("red  [31m tab ", std::string(499, 'x'), std::string(498, 'x') + umlaut,
                          std::string(500, 'z')));
}

TEST(OutputRelayTest, AnotherLifeBeginsWithoutLines) {
  const Captured captured(false);
  const auto relay = NewRelay();
  OutputRelay::Ends former = Open(*relay, 3);
  Put(former.err(), "last words\n");
  EXPECT_THAT(LastLines(*relay, 3), ElementsAre("last words"));
  const OutputRelay::Ends later = Open(*relay, 3);
  EXPECT_THAT(LastLines(*relay, 3), IsEmpty());
  Put(later.err(), "hello\n");
  Put(former.err(), "of a grandchild that is still there\n");
  EXPECT_THAT(LastLines(*relay, 3), ElementsAre("hello"));
  EXPECT_NE(captured.Text("err").find("grandchild"), std::string::npos);
}

// A task that never stops writing holds up nobody who waits.
TEST(OutputRelayTest, SettlingEndsAtItsLimit) {
  const Captured captured(true);
  auto relay = NewRelay();
  const OutputRelay::Ends ends = Open(*relay, 0);
  std::atomic<bool> quit{false};
  std::thread writer([&] {
    const std::string line(1000, 'w');
    while (!quit) {
      if (::write(ends.out.get(), (line + "\n").data(), line.size() + 1) < 0) return;
    }
  });
  const Deadline deadline = Deadline::After(std::chrono::seconds(20));
  while (relay->LastLines(0).empty() && !deadline.Expired()) std::this_thread::yield();
  relay->Settle(0, std::chrono::milliseconds(20));
  EXPECT_FALSE(deadline.Expired());
  quit = true;
  writer.join();
}

}  // namespace
}  // namespace passel::job::testing

#include "base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/output.h"

namespace passel {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

const std::string kTime =
    "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}[+-][0-9]{2}:[0-9]{2}";

/// Runs each of `bodies` in a process of its own, all with one pipe as standard error, and returns
/// what the pipe carried, in lines. A last line without a line feed is marked.
std::vector<std::string> LinesOf(const std::vector<std::function<void()>>& bodies) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  std::vector<pid_t> children;
  for (const auto& body : bodies) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(write_end.get(), STDERR_FILENO);
      ::alarm(60);  // a child that hangs ends, and the test with it
      body();
      ::_exit(FlushOutput(Stream::kErr, std::chrono::seconds(30)));
    }
    EXPECT_GT(child, 0);
    children.push_back(child);
  }
  write_end.Reset();
  std::string text;
  char buffer[65536];
  for (ssize_t got; (got = ::read(read_end.get(), buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  for (const pid_t child : children) {
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  std::vector<std::string> lines;
  std::size_t start = 0;
  for (std::size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1) {
    lines.push_back(text.substr(start, end - start));
  }
  if (start < text.size()) lines.push_back("no line feed after: " + text.substr(start));
  return lines;
}

TEST(LogTest, OnlyLinesOfTheLevelAndAboveAreWritten) {
  const auto all = [] {
    LogDebug("line {}", 1);
    LogInfo("line {}", 2);
    LogWarning("line {}", 3);
    LogError("line {}", 4);
  };
  const std::vector<std::pair<LogLevel, std::string>> table{{LogLevel::kDebug, "1234"},
                                                            {LogLevel::kInfo, "234"},
                                                            {LogLevel::kWarning, "34"},
                                                            {LogLevel::kError, "4"}};
  for (const auto& [level, expected] : table) {
    for (const bool renamed : {false, true}) {  // the level outlives a change of the name
      std::string written;
      for (const std::string& line : LinesOf({[&, l = level] {
             SetLogLevel(l);
             if (renamed) SetLogName("worker/1");
             all();
           }})) {
        EXPECT_THAT(line, ContainsRegex("line [1-4]$"));
        written += line.back();
      }
      EXPECT_EQ(written, expected);
    }
  }
  EXPECT_EQ(LinesOf({all}).size(), 3u) << "info is the level to begin with";
}

TEST(LogTest, ALineHasTimeLevelAndTheNameOfItsTask) {
  EXPECT_THAT(LinesOf({[] { LogInfo("hello {}", "there"); }}),
              ElementsAre(MatchesRegex(kTime + " I hello there")));
  EXPECT_THAT(LinesOf({[] {
                SetLogName("worker/1");
                LogWarning("{} is slow", 2);
              }}),
              ElementsAre(MatchesRegex(kTime + " W \\[worker/1\\] 2 is slow")));
}

TEST(LogTest, TheTimeIsThatOfTheZone) {
  const auto line = LinesOf({[] {
    ::setenv("TZ", "<+0530>-5:30", 1);
    ::tzset();
    LogInfo("here");
  }});
  ASSERT_EQ(line.size(), 1u);
  EXPECT_EQ(line[0].substr(23), "+05:30 I here");
}

TEST(LogTest, JsonLinesHoldWhateverTheTextIs) {
  const std::string hostile = "a \"quote\", a \\, a\nline \xff and \x01";
  const auto lines = LinesOf({[&] {
    SetLogFormat(LogFormat::kJson);
    SetLogName("worker/1");
    LogLine(LogLevel::kWarning, hostile);
    SetLogName("");
    LogInfo("{}", "plain");
  }});
  ASSERT_EQ(lines.size(), 2u);
  const nlohmann::json first = nlohmann::json::parse(lines[0]);
  EXPECT_THAT(first["time"].get<std::string>(), MatchesRegex(kTime));
  EXPECT_EQ(first["level"], "warning");
  EXPECT_EQ(first["task"], "worker/1");
  EXPECT_EQ(first["message"], "a \"quote\", a \\, a?line \xef\xbf\xbd and ?");
  EXPECT_EQ(nlohmann::json::parse(lines[1])["task"], "");
}

TEST(LogTest, AFileGetsTheLinesOfAllWhoNameIt) {
  const std::string path = ::testing::TempDir() + "passel-log-test." + std::to_string(::getpid());
  const auto body = [&](const char* name) {
    return [&path, name] {
      SetLogName(name);
      if (!OpenLogFile(path).ok()) ::_exit(1);
      for (int i = 0; i < 1000; ++i) LogInfo("{} {}", name, i);
    };
  };
  const auto lines = LinesOf({body("ps/0"), body("worker/0")});
  EXPECT_EQ(lines.size(), 2000u);
  std::ifstream file(path);
  std::vector<std::string> in_file;
  for (std::string line; std::getline(file, line);) in_file.push_back(line);
  EXPECT_THAT(in_file, ::testing::UnorderedElementsAreArray(lines));
  ::unlink(path.c_str());
  EXPECT_EQ(OpenLogFile("/dev/null").code(), Code::kInvalidArgument);
  EXPECT_EQ(OpenLogFile("/nowhere/log").code(), Code::kInvalidArgument);
}

TEST(EventTallyTest, TellsOfTheFirstAtOnceThenOnceInTenSeconds) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  EventTally tally;
  EXPECT_EQ(tally.Take(5 * kSecond), 0u);
  EXPECT_EQ(tally.due_ns(), INT64_MAX);
  tally.Count();
  EXPECT_LE(tally.due_ns(), 5 * kSecond);
  EXPECT_EQ(tally.Take(5 * kSecond), 1u);
  for (int i = 0; i < 3000; ++i) tally.Count();
  EXPECT_EQ(tally.due_ns(), 15 * kSecond);
  EXPECT_EQ(tally.Take(15 * kSecond - 1), 0u);
  EXPECT_EQ(tally.Take(15 * kSecond), 3000u);
  EXPECT_EQ(tally.Take(40 * kSecond), 0u);
}

TEST(LogTest, BracesAndPercentSignsInATextAreNotFormatted) {
  const std::string hostile = "{} {0} %n %s %v";
  const auto lines = LinesOf({[&] { LogLine(LogLevel::kError, hostile); }});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].substr(lines[0].size() - hostile.size()), hostile);
}

TEST(LogTest, ATextWithLineEndsIsOneLine) {
  EXPECT_THAT(LinesOf({[] { LogInfo("no file {}", "a\nb\x1b[7m\t"); }}),
              ElementsAre(::testing::EndsWith(" I no file a?b?[7m?")));
}

TEST(LogTest, LevelsAreParsedByName) {
  LogLevel level = LogLevel::kError;
  EXPECT_TRUE(ParseLogLevel("debug", &level));
  EXPECT_EQ(level, LogLevel::kDebug);
  EXPECT_TRUE(ParseLogLevel("info", &level));
  EXPECT_EQ(level, LogLevel::kInfo);
  EXPECT_TRUE(ParseLogLevel("warning", &level));
  EXPECT_EQ(level, LogLevel::kWarning);
  EXPECT_TRUE(ParseLogLevel("error", &level));
  EXPECT_EQ(level, LogLevel::kError);
  for (const char* name : {"", "Info", "warn", "errors", "trace"}) {
    EXPECT_FALSE(ParseLogLevel(name, &level)) << name;
    EXPECT_EQ(level, LogLevel::kError);
  }
}

TEST(LogTest, TwoProcessesThatShareAPipeNeverMixTheirLines) {
  constexpr int kLines = 10'000;
  const auto writer = [](const char* name) {
    return [name] {
      SetLogName(name);
      // Lengths up to 3 KiB: a pipe takes up to 4 KiB (PIPE_BUF) as a whole.
      for (int i = 0; i < kLines; ++i) {
        LogInfo("{} {} {}.", name, i,
                std::string(static_cast<std::size_t>(i * 7919 % 3000), name[0]));
        // More than is kept for a reader would be dropped.
        if (i % 100 == 0) FlushOutput(Stream::kErr, std::chrono::seconds(30));
      }
    };
  };
  const auto lines = LinesOf({writer("ps/0"), writer("worker/0")});
  EXPECT_EQ(lines.size(), 2u * kLines);
  std::map<std::string, int> next;
  int interleavings = 0;
  std::string last;
  for (const std::string& line : lines) {
    const std::string name = line.find("[ps/0]") != std::string::npos ? "ps/0" : "worker/0";
    const int i = next[name]++;
    const std::string expected =
        fmt::format("[{}] {} {} {}.", name, name, i,
                    std::string(static_cast<std::size_t>(i * 7919 % 3000), name[0]));
    ASSERT_GT(line.size(), expected.size());
    ASSERT_EQ(line.substr(line.size() - expected.size()), expected);
    ASSERT_EQ(line.size() - expected.size(),
              std::string("2026-01-31T00:00:00.000+00:00 I ").size());
    interleavings += name != last ? 1 : 0;
    last = name;
  }
  EXPECT_GT(interleavings, 10) << "the processes did not run side by side";
}

TEST(LogTest, ThreadsOfOneProcessNeverMixTheirLines) {
  const auto lines = LinesOf({[] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < 1000; ++i) LogInfo("{}{}{}{}", t, t, t, t);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }});
  EXPECT_EQ(lines.size(), 4000u);
  for (const std::string& line : lines)
    ASSERT_THAT(line, MatchesRegex(".* I (0000|1111|2222|3333)"));
}

}  // namespace
}  // namespace passel

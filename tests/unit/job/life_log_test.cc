// Deaths and starts of tasks as reports tell them, and why the kernel killed one.

#include "job/life_log.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "job/oom_watch.h"
#include "support/temp_dir.h"

namespace passel::job::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TaskDeath Killed(const std::string& task, int life, double at_s,
                 std::vector<std::string> lines = {}) {
  return {task, life, at_s, "was killed by SIGKILL (9)", {true, SIGKILL}, std::move(lines)};
}

nlohmann::json Described(const LifeLog& log) {
  Json json;
  log.Describe(&json);
  return nlohmann::json::parse(json.Write());
}

TEST(LifeLogTest, AJobWithoutDeathsHasNothingToSay) {
  LifeLog log;
  log.Add(TaskStart{"ps/0", 1, 0.1});
  EXPECT_EQ(log.FirstDeath(), "");
  EXPECT_EQ(log.InWords(true), "");
  const nlohmann::json json = Described(log);
  EXPECT_EQ(json["deaths"], nlohmann::json::array());
  EXPECT_EQ(json["ps_restarts"], 0);
  EXPECT_EQ(json["starts"], nlohmann::json::parse(R"([{"task": "ps/0", "life": 1, "at_s": 0.1}])"));
}

TEST(LifeLogTest, TellsWhoDiedFirstAndWhoCameBack) {
  LifeLog log;
  log.Add(TaskStart{"worker/1", 1, 0.1});
  log.Add(TaskStart{"ps/0", 1, 0.1});
  log.Add(Killed("worker/1", 1, 3.21, {"one", "two", "three", "four"}));
  log.Add(TaskStart{"worker/1", 2, 3.3});
  log.Add(TaskDeath{"ps/0", 1, 4.0, "exited with 143", {false, 143}});
  log.Add(TaskStart{"ps/0", 2, 4.0});
  log.Add(Killed("worker/1", 2, 5.0));
  EXPECT_EQ(log.FirstDeath(), "worker/1 died first, after 3.2 s: it was killed by SIGKILL (9)");
  EXPECT_EQ(log.InWords(true),
            "worker/1 died first, after 3.2 s: it was killed by SIGKILL (9); its last lines:\n"
            "  one\n  two\n  three\n  four\n"
            "ps/0 died, after 4.0 s: it exited with 143; it was started again\n"
            "worker/1 died, after 5.0 s: it was killed by SIGKILL (9)\n");
  EXPECT_EQ(log.InWords(false),
            "worker/1 died first, after 3.2 s: it was killed by SIGKILL (9); it was started again\n"
            "ps/0 died, after 4.0 s: it exited with 143; it was started again\n"
            "worker/1 died, after 5.0 s: it was killed by SIGKILL (9)\n");
  const nlohmann::json json = Described(log);
  EXPECT_EQ(json["ps_restarts"], 1);
  const nlohmann::json first = {{"task", "worker/1"},
                                {"life", 1},
                                {"at_s", 3.21},
                                {"cause", "was killed by SIGKILL (9)"},
                                {"exit_code", nullptr},
                                {"signal", 9},
                                {"last_lines", {"one", "two", "three", "four"}},
                                {"restarted", true}};
  EXPECT_EQ(json["deaths"][0], first);
  EXPECT_EQ(json["deaths"][1]["exit_code"], 143);
  EXPECT_TRUE(json["deaths"][1]["signal"].is_null());
  EXPECT_EQ(json["deaths"][1]["restarted"], true);
  EXPECT_EQ(json["deaths"][2]["restarted"], false);
  EXPECT_EQ(json["starts"].size(), 4u);
}

TEST(LifeLogTest, TheDeathThatEndedTheJobHasTheLastWord) {
  LifeLog log;
  log.Add(TaskDeath{"worker/0", 1, 1.0, "exited with 1", {false, 1}, {"a", "b", "c", "d"}});
  EXPECT_EQ(log.FirstDeath(),
            "worker/0 died first, after 1.0 s: it exited with 1; its last lines: b | c | d");
  EXPECT_THAT(log.InWords(false), EndsWith("; its last lines:\n  a\n  b\n  c\n  d\n"));
  log.LastDeathEndedJob();
  EXPECT_EQ(log.InWords(false),
            "worker/0 died first, after 1.0 s: it exited with 1; its last lines:\n"
            "  a\n  b\n  c\n  d\n");

  LifeLog later;
  std::vector<std::string> lines;
  std::string shown;
  for (int i = 0; i < 30; ++i) {
    lines.push_back(fmt::format("line {}", i));
    shown += fmt::format("  line {}\n", i);
  }
  for (int life = 1; life <= 2000; ++life) {
    later.Add(TaskStart{"worker/1", life, 1.0 * life});
    later.Add(Killed("worker/1", life, 1.0 * life, {"survived"}));
  }
  later.Add(TaskDeath{"worker/0", 1, 5.04, "exited with 1", {false, 1}, lines});
  later.LastDeathEndedJob();
  later.Add(Killed("worker/2", 1, 5.1, {"too late"}));
  later.LastDeathEndedJob();
  for (const bool tells_survived : {false, true}) {
    const std::string text = later.InWords(tells_survived);
    EXPECT_THAT(text, EndsWith("\nand 1990 more deaths\n"
                               "worker/0 died and ended the job, after 5.0 s: it exited with 1; "
                               "its last lines:\n" +
                               shown));
    EXPECT_THAT(text, AllOf(HasSubstr("worker/1 died first, after 1.0 s"),
                            Not(HasSubstr("\n  survived")), Not(HasSubstr("too late"))));
  }
}

TEST(LifeLogTest, TellsHowTheNumberOfWorkersChanged) {
  LifeLog log;
  log.Add(ScaleChange{4, 2.51});
  log.Add(ScaleChange{1, 9.0});
  log.Add(TaskLeave{"worker/3", 1, 9.1});
  EXPECT_EQ(log.InWords(true), "number of workers changed to 4 after 2.5 s, to 1 after 9.0 s\n");
  EXPECT_EQ(log.FirstDeath(), "");
  const nlohmann::json json = Described(log);
  EXPECT_EQ(json["deaths"].size(), 0u);
  EXPECT_EQ(json["scaled"], nlohmann::json::parse(R"([{"workers": 4, "at_s": 2.51},
                                                      {"workers": 1, "at_s": 9.0}])"));
  EXPECT_EQ(json["leaves"],
            nlohmann::json::parse(R"([{"task": "worker/3", "life": 1, "at_s": 9.1}])"));
}

TEST(LifeLogTest, IsBoundedHoweverManyDie) {
  LifeLog log;
  for (int life = 1; life <= 5000; ++life) {
    log.Add(TaskStart{"ps/0", life, 1.0 * life});
    log.Add(Killed("ps/0", life, 1.0 * life, {"a line"}));
  }
  EXPECT_EQ(log.starts().size(), LifeLog::kMostStarts);
  EXPECT_EQ(log.deaths().size(), LifeLog::kMostDeaths);
  EXPECT_EQ(log.num_deaths(), 5000);
  EXPECT_EQ(log.ps_restarts(), 4999);
  EXPECT_FALSE(log.deaths()[LifeLog::kMostWithLines - 1].last_lines.empty());
  EXPECT_TRUE(log.deaths()[LifeLog::kMostWithLines].last_lines.empty());
  EXPECT_THAT(log.InWords(true), HasSubstr("\nand 4989 more deaths\n"));
  EXPECT_THAT(log.InWords(true), Not(HasSubstr("ended the job")));
  // Whose start is not there came back all the same; others with their number have not.
  EXPECT_TRUE(log.deaths().back().restarted);
}

TEST(LifeLogTest, DocsNameEveryField) {
  LifeLog log;
  log.Add(TaskStart{"ps/0", 1, 0.1});
  log.Add(Killed("ps/0", 1, 0.2));
  std::ifstream file(PASSEL_SOURCE_DIR "/docs/report.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const nlohmann::json json = Described(log);
  for (const nlohmann::json& object : {json, json["starts"][0], json["deaths"][0]}) {
    for (const auto& [name, value] : object.items()) EXPECT_THAT(text, HasSubstr("`" + name + "`"));
  }
}

// A machine with the given files.
class FakeRoot {
 public:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path full = dir_.path() + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  const std::string& path() const { return dir_.path(); }

 private:
  test::TempDir dir_;
};

struct Machine {
  const char *name, *cgroup, *file, *format;
};

TEST(OomWatchTest, ReadsTheCountOfTheGroupOrOfTheMachine) {
  const char* const v2 = "low 0\nhigh 7\nmax 9\noom 4\noom_kill {}\noom_group_kill 0\n";
  const char* const v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n";
  for (const Machine& m :
       {Machine{"v2", "0::/a/b\n", "/sys/fs/cgroup/a/b/memory.events", v2},
        Machine{"v2, its own group is all it sees", "0::/a/b\n", "/sys/fs/cgroup/memory.events",
                v2},
        Machine{"v2, namespace", "0::/\n", "/sys/fs/cgroup/memory.events", v2},
        Machine{"v1", "4:cpu:/x\n3:memory:/c\n0::/\n", "/sys/fs/cgroup/memory/c/memory.oom_control",
                v1},
        Machine{"v1, container", "3:hugetlb,memory:/docker/1\n",
                "/sys/fs/cgroup/memory/memory.oom_control", v1},
        Machine{"root group", "0::/\n", "/proc/vmstat", "nr_free 5\noom_kill {}\n"}}) {
    SCOPED_TRACE(m.name);
    const FakeRoot root;
    const auto kills = [&](int n) { root.Write(m.file, fmt::format(fmt::runtime(m.format), n)); };
    root.Write("/proc/self/cgroup", m.cgroup);
    kills(3);
    OomWatch watch(root.path());
    EXPECT_EQ(watch.Explain(), "") << "those of before are not ours";
    kills(5);
    EXPECT_EQ(watch.Explain(),
              fmt::format(", out of memory? (oom_kill of {}{} has risen)", root.path(), m.file));
    EXPECT_THAT(watch.Explain(), HasSubstr("out of memory?")) << "two were killed";
    EXPECT_EQ(watch.Explain(), "");
  }
}

TEST(OomWatchTest, WithoutAnyCountItSaysNothing) {
  const FakeRoot root;
  OomWatch watch(root.path());
  EXPECT_EQ(watch.Explain(), "");
  root.Write("/proc/self/cgroup", "no line of a cgroup\n::\n0::/a\n");
  root.Write("/proc/vmstat", "oom_kill many\n");
  EXPECT_EQ(OomWatch(root.path()).Explain(), "");
}

}  // namespace
}  // namespace passel::job::testing

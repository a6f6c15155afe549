// What the program says of itself: help on a terminal, the page of settings, the manual,
// completion.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "e2e/preset_run.h"
#include "job/settings_table.h"
#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::size_t Longest(const std::string& text) {
  std::size_t longest = 0;
  for (const std::string& line : Lines(text)) longest = std::max(longest, line.size());
  return longest;
}

TEST(HelpTest, OfATrainingCommandIsShortAndFitsTheTerminal) {
  Sandbox sandbox;
  sandbox.SetEnv("COLUMNS", "72");
  for (const std::string command : {"train", "launch", "task"}) {
    SCOPED_TRACE(command);
    const Outcome help = sandbox.Run({command, "--help"});
    EXPECT_EQ(help.code, 0) << help.err;
    EXPECT_LE(Lines(help.out).size(), 46u) << help.out;
    EXPECT_LE(Longest(help.out), 72u) << help.out;
    EXPECT_THAT(help.out, HasSubstr("Examples:\n  passel " + command + " "));
    EXPECT_THAT(help.out, HasSubstr("passel " + command + " --help all  lists all "));
    EXPECT_THAT(help.out, HasSubstr("  --mode TEXT "));
    EXPECT_THAT(help.out, Not(HasSubstr("--huge_pages")));
  }
  sandbox.SetEnv("COLUMNS", "200");
  EXPECT_GT(Longest(sandbox.Run({"train", "--help"}).out), 100u);
  // A sentence that has dots in it is not cut there.
  EXPECT_THAT(sandbox.Run({"task", "--help"}).out, HasSubstr("host:port,... of all workers\n"));
}

TEST(HelpTest, AllOfItHasEverySettingOfTheCommand) {
  Sandbox sandbox;
  job::TrainSettings train;
  const Outcome all = sandbox.Run({"train", "--help", "all"});
  EXPECT_EQ(all.code, 0) << all.err;
  for (const job::SettingRow& row : job::SettingsTable()) {
    if (row.value(job::ViewOf(train)).index() == 0 ||
        (row.traits.only != nullptr && row.traits.only != std::string_view("train"))) {
      continue;
    }
    EXPECT_TRUE(all.out.find("--" + row.name) != std::string::npos ||
                all.out.find("--[no]" + row.name) != std::string::npos)
        << row.name;
  }
  EXPECT_THAT(all.out, HasSubstr("\nMachine:\n"));
  EXPECT_THAT(all.out, Not(HasSubstr("listen_fd"))) << "what a supervisor tells its children";
  EXPECT_LE(Longest(all.out), 130u);
  EXPECT_EQ(sandbox.Run({"train", "--help=all"}).out, all.out);
  EXPECT_EQ(sandbox.Run({"help", "train", "all"}).out, all.out);
  EXPECT_EQ(sandbox.Run({"help", "train"}).out, sandbox.Run({"train", "--help"}).out);
  EXPECT_EQ(sandbox.Run({"help"}).out, sandbox.Run({"--help"}).out);
}

// After a change of the table:  passel help --format=markdown > docs/settings.md
TEST(HelpTest, ThePageOfSettingsIsWhatTheProgramPrints) {
  Sandbox sandbox;
  const Outcome page = sandbox.Run({"help", "--format=markdown"});
  EXPECT_EQ(page.code, 0) << page.err;
  EXPECT_EQ(page.out, ReadText(PASSEL_SOURCE_DIR "/docs/settings.md"));
}

TEST(HelpTest, TheManualPageHasEveryCommandAndSetting) {
  Sandbox sandbox;
  const Outcome page = sandbox.Run({"help", "--format=man"});
  EXPECT_THAT(page.out, HasSubstr(".SS passel ctl set\\-mode\n"));
  for (const job::SettingRow& row : job::SettingsTable()) {
    if (row.group.empty()) continue;
    EXPECT_THAT(page.out, HasSubstr("\\fB\\-\\-" + row.name + "\\fR"));
  }
}

TEST(HelpTest, BashCompletesCommandsAndFlags) {
  Sandbox sandbox;
  const std::string file = sandbox.dir().File("completion");
  WriteText(file, sandbox.Run({"help", "--format=bash"}).out);
  const auto completed = [&](const std::string& words, int at) {
    const std::string script = "source " + file + "; COMP_WORDS=(" + words +
                               "); COMP_CWORD=" + std::to_string(at) +
                               "; compopt() { :; }; _passel; echo \"${COMPREPLY[*]}\"";
    Program bash = sandbox.StartCommand({"/bin/bash", "-c", script});
    return sandbox.Finish(bash).out;
  };
  EXPECT_EQ(completed("passel tra", 1), "train\n");
  EXPECT_EQ(completed("passel ctl se", 2), "set-mode\n");
  EXPECT_EQ(completed("passel train --batch", 2), "--batch_size=\n");
  EXPECT_EQ(completed("passel task --job_name worker --noover", 4), "--nooverlap\n");
}

TEST(HelpTest, WhatIsMeantByAWordIsDone) {
  Sandbox sandbox;
  // Jobs of other tests come and go: there is a table of them, or a sentence.
  const Outcome list = sandbox.Run({"list"});
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_THAT(list.out, ::testing::AnyOf(::testing::StartsWith("JOB "),
                                         ::testing::StartsWith("no job of this user is running")));
  const Outcome status = sandbox.Run({"status", "no-such-job"});
  EXPECT_EQ(status.code, sandbox.Run({"ctl", "status", "no-such-job"}).code);
  EXPECT_THAT(status.err, HasSubstr("no-such-job"));
  const Outcome unknown = sandbox.Run({"help", "trian"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("passel has no command \"trian\""));
}

}  // namespace
}  // namespace passel::testing

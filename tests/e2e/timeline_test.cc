// --timeline_dir in the real program: which files there are, what they show, what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

TEST(TimelineTest, EachWorkerHasAFolderOfItsOwn) {
  Sandbox sandbox;
  const std::string folder = sandbox.dir().File("a/timelines");
  // What a life that was killed while it wrote has left.
  std::filesystem::create_directories(folder + "/worker-0");
  WriteText(folder + "/worker-0/timeline-7.json.tmp.4711.0", "{");
  const Outcome run = sandbox.Run(
      sandbox.Train({"--workers=2", "--mode=barrier", "--train_steps=25", "--batch_size=10",
                     "--timeline_dir=" + folder, "--timeline_steps=10"}),
      60);
  ASSERT_EQ(run.code, 0) << run.err;
  for (const char* worker : {"worker-0", "worker-1"}) {
    const std::string own = folder + "/" + worker;
    EXPECT_THAT(NamesIn(own), ElementsAre("timeline-12.json", "timeline-2.json", "timeline-22.json",
                                          "timeline-25.json"));
    std::multiset<std::string> bars;
    const nlohmann::json timeline = ReadJson(own + "/timeline-22.json");
    for (const auto& event : timeline.at("traceEvents")) {
      if (event.at("ph") == "X") bars.insert(event.at("name").get<std::string>());
    }
    EXPECT_EQ(bars.count("step"), 10u);
    EXPECT_EQ(bars.count("wait"), 10u) << "for the other, in every round";
    EXPECT_THAT(bars, IsSupersetOf({"compute", "push"}));
  }
}

TEST(TimelineTest, AFolderThatCannotBeIsAnErrorThatNamesIt) {
  Sandbox sandbox;
  const std::string file = sandbox.dir().File("file");
  WriteText(file, "");
  const std::vector<std::string> alone = {"--ps=0", "--workers=1", "--train_steps=5"};
  Outcome run = sandbox.Run(sandbox.Train(With(alone, {"--timeline_dir=" + file})), 60);
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("--timeline_dir " + file + " is not a folder"));
  run = sandbox.Run(sandbox.Train(With(alone, {"--timeline_dir=" + file + "/below"})), 60);
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("cannot be made"));
  run = sandbox.Run(sandbox.Train(With(alone, {"--timeline_steps=0"})), 60);
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("--timeline_steps"));
}

}  // namespace
}  // namespace passel::testing

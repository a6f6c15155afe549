#include "train/preset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "train/log_lines.h"

namespace passel {
namespace {

using ::testing::HasSubstr;

TEST(Preset, FiveOfThemAreFoundByName) {
  std::set<std::string> names;
  for (const Preset& preset : Presets()) {
    names.emplace(preset.name);
    const Result<const Preset*> found = FindPreset(preset.name);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, &preset);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("async-softmax", "dist-mnist", "k8s-adagrad",
                                            "mnist-replica", "monitored"));
}

TEST(Preset, UnknownNameIsAnErrorThatListsThem) {
  const Result<const Preset*> found = FindPreset("mnist");
  ASSERT_EQ(found.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(found.status().message(), HasSubstr("mnist"));
  for (const Preset& preset : Presets()) {
    EXPECT_THAT(found.status().message(), HasSubstr(std::string(preset.name)));
  }
}

TEST(Preset, NoFlagIsSetTwice) {
  for (const Preset& preset : Presets()) {
    std::set<std::string_view> flags;
    for (const PresetSetting& setting : preset.settings) {
      EXPECT_TRUE(flags.insert(setting.flag).second) << preset.name << " " << setting.flag;
      EXPECT_FALSE(setting.value.empty()) << preset.name << " " << setting.flag;
    }
  }
}

TEST(Preset, LogLinesAreThoseOfTheSameName) {
  for (const Preset& preset : Presets()) {
    EXPECT_EQ(preset.Find("log_lines"), preset.name);
    EXPECT_TRUE(ParseLogStyle(preset.Find("log_lines")).ok());
  }
}

TEST(Preset, DescriptionCanBeTypedBack) {
  const std::string text = DescribePreset(**FindPreset("async-softmax"));
  for (const char* line :
       {"\n  --model=softmax\n", "\n  --learning_rate=0.01\n", "\n  --epochs=50\n",
        "\n  --workers=3\n", "\n  --worker_hosts=localhost:9002,localhost:9003,localhost:9004\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_EQ(FindPreset("dist-mnist").value()->Find("train_steps"), "20000");
  EXPECT_EQ(FindPreset("dist-mnist").value()->Find("epochs"), "");
}

}  // namespace
}  // namespace passel

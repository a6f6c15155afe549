// The file of --config: YAML and JSON, types, places of errors, hostile input.

#include "cluster/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "unit/cluster/damage.h"

namespace passel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<FileFlag>& Known() {
  static const std::vector<FileFlag> known{
      {"batch_size", FlagType::kInteger}, {"learning_rate", FlagType::kNumber},
      {"data_dir", FlagType::kText},      {"sync_replicas", FlagType::kBool},
      {"hidden_units", FlagType::kList},  {"train_steps", FlagType::kInteger},
      {"ps_hosts", FlagType::kText},
  };
  return known;
}

/// "name=value name=value", or the error's text.
std::string Outcome(std::string_view text) {
  const auto file = ParseConfigFile("c.yaml", text, Known());
  if (!file.ok()) {
    EXPECT_EQ(file.status().code(), Code::kInvalidArgument) << text;
    return "ERROR " + file.status().message();
  }
  std::string all;
  for (const auto& values : {file->values, file->single_tasks}) {
    for (const auto& [name, value] : values) {
      all += (all.empty() ? "" : " ");
      all += name + "=" + value.text;
    }
  }
  return all;
}

struct Case {
  std::string text;
  std::string outcome;
};

void Check(const std::vector<Case>& table) {
  for (const Case& c : table) EXPECT_EQ(Outcome(c.text), c.outcome) << c.text;
}

TEST(ConfigFileTest, FlatValuesKeepTheirTextAndTheirPlace) {
  const auto file = ParseConfigFile("train.yaml",
                                    "# how we train\n"
                                    "batch_size: 100\n"
                                    "\n"
                                    "learning_rate: 1e-3   # small\n"
                                    "data_dir: \"/tmp/a b\"\n"
                                    "sync_replicas: true\n",
                                    Known());
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->path, "train.yaml");
  ASSERT_EQ(file->values.size(), 4u);
  EXPECT_EQ(file->values.at("batch_size").text, "100");
  EXPECT_EQ(file->values.at("batch_size").line, 2);
  EXPECT_EQ(file->values.at("learning_rate").text, "1e-3");
  EXPECT_EQ(file->values.at("learning_rate").line, 4);
  EXPECT_EQ(file->values.at("data_dir").text, "/tmp/a b");
  EXPECT_EQ(file->values.at("sync_replicas").line, 6);
  EXPECT_EQ(file->values.at("sync_replicas").column, 1);
}

TEST(ConfigFileTest, FilesThatSayNothingAreEmpty) {
  Check({{"", ""},
         {"\n# nothing\n", ""},
         {"{}", ""},
         {"---\n", ""},
         {"~", ""},
         {"--- {}\n...\n", ""},
         {"\xEF\xBB\xBF{}", ""},
         {"cluster: {}\ntask: {}\n", ""}});
}

TEST(ConfigFileTest, JsonIsReadByTheSameRules) {
  const std::string yaml =
      "batch_size: 7\n"
      "learning_rate: 0.5\n"
      "data_dir: /d\n"
      "sync_replicas: false\n"
      "hidden_units: [256, 128]\n"
      "cluster:\n  ps:\n  - p:1\n  worker:\n  - w:1\n  - \"[::1]:2\"\n"
      "task:\n  type: worker\n  index: 1\n";
  const std::string json =
      "{\n\t\"batch_size\":7,\"learning_rate\" : 0.5, \"data_dir\":\"\\/d\",\r\n"
      "\t\"sync_replicas\":false, \"hidden_units\":[256,128],\n"
      "\t\"cluster\":{\"ps\":[\"p:1\"],\"worker\":[\"w:1\",\"[::1]:2\"]},\n"
      "\t\"task\":{\"type\":\"worker\",\"index\":1}\n}\n";
  const std::string outcome =
      "batch_size=7 data_dir=/d hidden_units=256,128 job_name=worker learning_rate=0.5 "
      "ps_hosts=p:1 sync_replicas=false task_index=1 worker_hosts=w:1,[::1]:2";
  Check({{yaml, outcome}, {json, outcome}});
}

TEST(ConfigFileTest, AScalarIsJudgedByItsFlagAlone) {
  Check({
      {"data_dir: no", "data_dir=no"},
      {"data_dir: 007", "data_dir=007"},
      {"data_dir: ''", "data_dir="},
      {"data_dir: 'null'", "data_dir=null"},
      {"data_dir: 1.0", "data_dir=1.0"},
      {"data_dir: d\xC3\xA9j\xC3\xA0", "data_dir=d\xC3\xA9j\xC3\xA0"},
      {"data_dir: >-\n  a\n  b\n", "data_dir=a b"},
      {"batch_size: -5", "batch_size=-5"},
      {"batch_size: 18446744073709551615", "batch_size=18446744073709551615"},
      {"learning_rate: 1", "learning_rate=1"},
      {"learning_rate: -2.5E-3", "learning_rate=-2.5E-3"},
      {"hidden_units: 100", "hidden_units=100"},
      {"hidden_units: '256,128'", "hidden_units=256,128"},
      {"hidden_units: []", "hidden_units="},
      {"hidden_units:\n- 256\n- 128", "hidden_units=256,128"},
      {"ps_hosts: a:1", "ps_hosts=a:1"},
      {"ps_hosts: a:1,B:2", "ps_hosts=a:1,b:2"},
      {"ps_hosts: ''", "ps_hosts="},
      {"ps_hosts: [a:1, b:2]", "ps_hosts=a:1,b:2"},
      {"worker_hosts: {1: b:2, 0: a:1}", "worker_hosts=a:1,b:2"},
      {"task_index: 3", "task_index=3"},
      {"task_index: '3'", "task_index=3"},
      {"task: {index: '0'}", "task_index=0"},
      {"cluster: {chief: [c:1], evaluator: 'e:1'}", "chief=c:1 evaluator=e:1"},
      {"cluster: {master: {0: c:1}}", "master=c:1"},
  });
}

std::string NoInteger(const std::string& place, const std::string& shown) {
  return "ERROR " + place + "\"batch_size\" must be an integer such as 100, without quotes, not " +
         shown;
}
std::string NoNumber(const std::string& shown) {
  return "ERROR c.yaml:1:16: \"learning_rate\" must be a number such as 0.01, without quotes, "
         "not " +
         shown;
}

TEST(ConfigFileTest, WrongTypesAreNamedWithTheirPlace) {
  Check({
      {"batch_size: many", NoInteger("c.yaml:1:13: ", "\"many\"")},
      {"\n batch_size: \"100\"", NoInteger("c.yaml:2:14: ", "the text \"100\"")},
      {"batch_size: 1.0", NoInteger("c.yaml:1:13: ", "\"1.0\"")},
      {"batch_size: 0x10", NoInteger("c.yaml:1:13: ", "\"0x10\"")},
      {"batch_size: 1_000", NoInteger("c.yaml:1:13: ", "\"1_000\"")},
      {"batch_size: 18446744073709551616", NoInteger("c.yaml:1:13: ", "\"18446744073709551616\"")},
      {"batch_size: [1]",
       "ERROR c.yaml:1:13: \"batch_size\" takes a single value, not a list: write batch_size: "
       "value"},
      {"batch_size: {a: 1}",
       "ERROR c.yaml:1:13: \"batch_size\" takes a single value, not a section: write batch_size: "
       "value"},
      {"batch_size:",
       "ERROR c.yaml:1:12: \"batch_size\" has no value: write one, or \"\" for empty text"},
      {"data_dir: null",
       "ERROR c.yaml:1:11: \"data_dir\" has no value: write one, or \"\" for empty text"},
      {"data_dir: ~",
       "ERROR c.yaml:1:11: \"data_dir\" has no value: write one, or \"\" for empty text"},
      {"data_dir: \"a\\0b\"",
       "ERROR c.yaml:1:11: the value of \"data_dir\" has a control character: remove it"},
      {"data_dir: |\n  a\n",
       "ERROR c.yaml:1:11: the value of \"data_dir\" has a control character: remove it"},
      {"learning_rate: fast", NoNumber("\"fast\"")},
      {"learning_rate: .inf", NoNumber("\".inf\"")},
      {"learning_rate: nan", NoNumber("\"nan\"")},
      {"learning_rate: 1e999", NoNumber("\"1e999\"")},
      {"sync_replicas: yes",
       "ERROR c.yaml:1:16: \"sync_replicas\" must be true or false, without quotes, not \"yes\""},
      {"sync_replicas: 'true'",
       "ERROR c.yaml:1:16: \"sync_replicas\" must be true or false, without quotes, not the text "
       "\"true\""},
      {"hidden_units: ['1,2']",
       "ERROR c.yaml:1:16: an element of \"hidden_units\" has a comma: write two elements"},
      {"hidden_units: [1, [2]]",
       "ERROR c.yaml:1:19: an element of \"hidden_units\" is a single value, not a list: write "
       "hidden_units: [value, value]"},
      {"task_index: -1",
       "ERROR c.yaml:1:13: the task index must be an integer from 0 to 99999, not \"-1\""},
      {"task: {index: 100000}",
       "ERROR c.yaml:1:15: the task index must be an integer from 0 to 99999, not \"100000\""},
      {"ps_hosts: a",
       "ERROR c.yaml:1:11: Could not parse port for local server from \"a\": write host:port with "
       "a port of 1 to 65535"},
      {"cluster:\n  ps:\n  - a:1\n  - b:0\n",
       "ERROR c.yaml:4:5: Could not parse port for local server from \"b:0\": write host:port with "
       "a port of 1 to 65535"},
      {"cluster: {ps: [[a:1]]}",
       "ERROR c.yaml:1:16: an address is expected, not a list: write host:port"},
      {"cluster: {worker: {1: a:1}}",
       "ERROR c.yaml:1:19: \"worker_hosts\" has 1 tasks but the last has index 1: number them from "
       "0 to 0"},
      {"cluster: {worker: {x: a:1}}",
       "ERROR c.yaml:1:20: \"x\" is not a task index: use 0 to 99999"},
      {"cluster: {chief: [a:1, b:1]}",
       "ERROR c.yaml:1:18: the job \"chief\" takes exactly one address"},
      {"cluster: {chief: []}", "ERROR c.yaml:1:18: the job \"chief\" takes exactly one address"},
      {"cluster: {walker: [a:1]}",
       "ERROR c.yaml:1:11: \"walker\" is not a job of the cluster: use ps, worker, chief, master "
       "or "
       "evaluator"},
      {"cluster: [a:1]",
       "ERROR c.yaml:1:10: \"cluster\" is a section, but holds a list: write for example cluster: "
       "{ps: [host:1], worker: [host:2]}"},
      {"task: worker",
       "ERROR c.yaml:1:7: \"task\" is a section, but holds a single value: write for example task: "
       "{type: worker, index: 0}"},
      {"task: {kind: ps}",
       "ERROR c.yaml:1:8: \"kind\" is not known in the section \"task\": use type and index"},
      {"- a", "ERROR c.yaml:1:1: the file holds a list: write lines of the form name: value"},
      {"batch_size",
       "ERROR c.yaml:1:1: the file holds a single value: write lines of the form name: value"},
      {"? [a]\n: 1", "ERROR c.yaml:1:3: a list stands where a name belongs: write name: value"},
  });
}

TEST(ConfigFileTest, UnknownNamesSuggestTheNearestOne) {
  const auto unknown = [](const std::string& name, const std::string& hint) {
    EXPECT_EQ(Outcome("\n" + name + ": 1"),
              "ERROR c.yaml:2:1: the setting \"" + name + "\" is not known: " + hint);
  };
  unknown("batch_sise", "did you mean \"batch_size\"?");
  unknown("batchsize", "did you mean \"batch_size\"?");
  unknown("batch-size", "did you mean \"batch_size\"?");
  unknown("bacth_size", "did you mean \"batch_size\"?");
  unknown("data_dri", "did you mean \"data_dir\"?");
  unknown("lerning_rates", "did you mean \"learning_rate\"?");
  unknown("ps_host", "did you mean \"ps_hosts\"?");
  unknown("Cluster", "did you mean \"cluster\"?");
  unknown("tasks", "did you mean \"task\"?");
  unknown("zzz", "use the names of the flags, without dashes");
  unknown("--batch_size", "did you mean \"batch_size\"?");
  unknown("a", "use the names of the flags, without dashes");
  EXPECT_EQ(Outcome(std::string(300, 'x') + ": 1"),
            "ERROR c.yaml:1:1: the setting \"" + std::string(64, 'x') +
                "...\" is not known: use the names of the flags, without dashes");
}

TEST(ConfigFileTest, NothingIsGivenTwice) {
  Check({
      {"batch_size: 1\ndata_dir: x\nbatch_size: 1\n",
       "ERROR c.yaml:3:1: \"batch_size\" is given twice, first in line 1: remove one"},
      {"{\"batch_size\": 1, \"\\u0062atch_size\": 1}",
       "ERROR c.yaml:1:19: \"batch_size\" is given twice, first in line 1: remove one"},
      {"ps_hosts: a:1\ncluster: {ps: [b:1]}\n",
       "ERROR c.yaml:2:11: \"ps_hosts\" is given twice, first in line 1: remove one"},
      {"task: {type: ps}\njob_name: ps\n",
       "ERROR c.yaml:2:1: \"job_name\" is given twice, first in line 1: remove one"},
      {"task: {type: ps, type: ps}\n",
       "ERROR c.yaml:1:18: \"job_name\" is given twice, first in line 1: remove one"},
      {"task: {type: ps}\ntask: {index: 0}\n",
       "ERROR c.yaml:2:1: the section \"task\" is given twice, first in line 1: remove one"},
      {"cluster: {}\n\ncluster: {}\n",
       "ERROR c.yaml:3:1: the section \"cluster\" is given twice, first in line 1: remove one"},
      {"cluster: {ps: [a:1], ps: [a:1]}",
       "ERROR c.yaml:1:22: \"ps_hosts\" is given twice, first in line 1: remove one"},
      {"cluster: {worker: {0: a:1, 0: b:1}}",
       "ERROR c.yaml:1:28: task 0 of \"worker_hosts\" is given twice: remove one"},
  });
}

TEST(ConfigFileTest, WhatMultipliesOrConvertsIsRefused) {
  Check({
      {"data_dir: &a x",
       "ERROR c.yaml:1:11: anchors (&name) are not accepted: write the value "
       "alone"},
      {"&a data_dir: x",
       "ERROR c.yaml:1:1: anchors (&name) are not accepted: write the value "
       "alone"},
      {"cluster: &c {ps: [a:1]}",
       "ERROR c.yaml:1:10: anchors (&name) are not accepted: write the value alone"},
      {"data_dir: *a",
       "ERROR c.yaml:1:11: aliases (*name) are not accepted: write the value "
       "again"},
      {"<<: {batch_size: 1}",
       "ERROR c.yaml:1:1: merge keys (<<) are not accepted: write the values "
       "out"},
      {"data_dir: !!str x",
       "ERROR c.yaml:1:11: tags (!name) are not accepted: write the value "
       "alone"},
      {"data_dir: !!python/object/apply:os.system [id]",
       "ERROR c.yaml:1:11: tags (!name) are not accepted: write the value alone"},
      {"batch_size: 1\n---\nbatch_size: 2\n",
       "ERROR c.yaml:2:1: a second document begins here: keep one in a file"},
  });
  // A billion laughs, refused at the first anchor.
  std::string laughs = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 10; ++i) {
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) laughs += "*a" + std::to_string(i - 1) + (j < 9 ? "," : "]\n");
  }
  EXPECT_THAT(Outcome("data_dir: " + laughs.substr(4)), HasSubstr("anchors (&name)"));
}

TEST(ConfigFileTest, SyntaxErrorsNameLineAndColumn) {
  const std::vector<Case> table{
      {"data_dir: x\n batch_size: 1\n", "c.yaml:2:12: "},
      {"{\"batch_size\": 1", "c.yaml:2:1: "},
      {"batch_size: [1", "c.yaml:1:"},
      {"batch_size: 1\nx\n", "c.yaml:3:1: "},
      {"data_dir: \"a", "c.yaml:1:"},
      {"data_dir: 'a", "c.yaml:1:"},
      {"batch_size: 1\n\tdata_dir: x", "c.yaml:2:1: "},
      {"data_dir: @x", "c.yaml:1:11: "},
      {"worker_hosts:\n- [::1]:1\n", "c.yaml:2:"},
      {"data_dir: \"\\ud800\"", "c.yaml:1:"},
      {"%YAML 9.9\n--- {}", "c.yaml:1:"},
      {"data_dir: x\nbatch_size: \xff\n", "c.yaml:2:13: "},
      {"data_dir: \xC3\xA9\xC3\n", "c.yaml:1:13: "},
      {std::string("data_dir: a\0b", 13), "c.yaml:1:12: "},
      {"data_dir: \x01", "c.yaml:1:11: "},
      {"data_dir: \xed\xa0\x80", "c.yaml:1:11: "},
      {"\xff\xfe{\0}\0", "c.yaml:1:1: "},
  };
  for (const Case& c : table) {
    const std::string outcome = Outcome(c.text);
    EXPECT_THAT(outcome, StartsWith("ERROR " + c.outcome)) << c.text;
    for (const char ch : outcome) EXPECT_TRUE(ch >= 0x20 && ch < 0x7F) << c.text;
  }
}

TEST(ConfigFileTest, DeepAndLargeInputEndsSoon) {
  for (const std::string open : {"[", "{a: ", "{\"a\":", "- ", "? "}) {
    std::string text = "data_dir: ";
    if (open[0] == '-' || open[0] == '?') text = "";
    for (int i = 0; i < 100'000; ++i) text += open;
    EXPECT_THAT(Outcome(text), StartsWith("ERROR c.yaml:")) << open;
  }
  std::string text(kMaxConfigFileBytes, ' ');
  text.replace(0, 2, "{}");
  EXPECT_EQ(Outcome(text), "");
  const auto wrong = ParseConfigFile("c.yaml", text + " ", Known());
  EXPECT_EQ(wrong.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(
      wrong.status().message(),
      "c.yaml has 1048577 bytes, more than the 1048576 bytes allowed here: name a smaller file");
  // A million bytes of one scalar and of many elements.
  EXPECT_EQ(Outcome("data_dir: " + std::string(1'000'000, 'x')),
            "data_dir=" + std::string(1'000'000, 'x'));
  std::string many = "hidden_units: [1";
  for (int i = 0; i < 300'000; ++i) many += ",1";
  EXPECT_EQ(Outcome(many + "]").size(), std::string("hidden_units=1").size() + 600'000);
}

TEST(ConfigFileTest, AFileIsReadOrSaysWhyNot) {
  char path[] = "/tmp/passel_config_XXXXXX";
  const int fd = ::mkstemp(path);
  ASSERT_GE(fd, 0);
  const std::string text = "batch_size: 3\n";
  ASSERT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  const auto read = ReadConfigFile(path);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, text);
  ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(kMaxConfigFileBytes) + 1), 0);
  EXPECT_EQ(ReadConfigFile(path).status().code(), Code::kResourceExhausted);
  ::close(fd);
  ::unlink(path);
  EXPECT_EQ(ReadConfigFile(path).status().code(), Code::kNotFound);
  EXPECT_EQ(ReadConfigFile("/tmp").status().code(), Code::kInvalidArgument);
}

TEST(ConfigFileTest, DamagedFilesEndInAnErrorOrValues) {
  const std::string text =
      "batch_size: 100 # c\nhidden_units: [256, 128]\ncluster:\n  ps: [p:1]\n  worker:\n"
      "  - \"[::1]:1\"\n  - w:2\ntask: {type: worker, index: 1}\ndata_dir: 'a b'\n";
  const auto read = [](const std::string& damaged) {
    const Status status = ParseConfigFile("c.yaml", damaged, Known()).status();
    EXPECT_TRUE(status.ok() || status.message().starts_with("c.yaml:")) << damaged;
    return status;
  };
  EXPECT_GT(testing::RefusedOfDamaged(text, 11, read), 5'000);
}

}  // namespace
}  // namespace passel

// TF_CONFIG: a table of documents, round trips of generated clusters, hostile input.

#include "cluster/tf_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "unit/cluster/damage.h"

namespace passel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// "cluster | task | partial", or the error's text.
std::string OutcomeOf(std::string_view document) {
  const auto config = ParseTfConfig(document);
  if (!config.ok()) {
    EXPECT_EQ(config.status().code(), Code::kInvalidArgument) << document;
    return "ERROR " + config.status().message();
  }
  std::string text = config->cluster.CanonicalText();
  text += " | ";
  text += config->task_type;
  if (config->task_index) text += "/" + std::to_string(*config->task_index);
  if (config->partial) text += " | partial";
  return text;
}

struct DocumentCase {
  std::string document;
  std::string outcome;
};

void CheckDocuments(const std::vector<DocumentCase>& table) {
  for (const DocumentCase& c : table) EXPECT_EQ(OutcomeOf(c.document), c.outcome) << c.document;
}

constexpr const char* kPsWorkers = R"("cluster":{"ps":["p:1"],"worker":["w:1","w:2"]})";
constexpr const char* kPsWorkersText = "ps{0=p:1}worker{0=w:1,1=w:2}";

std::string WithTask(std::string_view task) {
  return "{" + std::string(kPsWorkers) + ",\"task\":" + std::string(task) + "}";
}
std::string Tasks(std::string_view task) { return kPsWorkersText + (" | " + std::string(task)); }

TEST(TfConfigTest, DocumentsThatSayNothingAreEmpty) {
  CheckDocuments({{"", " | "},
                  {" \n", " | "},
                  {"{}", " | "},
                  {" { } \n", " | "},
                  {R"({"cluster":null,"task":null,"environment":null,"rpc_layer":null})", " | "},
                  {R"({"cluster":{}})", " | "},
                  {R"({"cluster":{"ps":[],"worker":{},"chief":null}})", " | "},
                  {R"({"sparseCluster":{"worker":{},"ps":[]}})", " |  | partial"},
                  {R"({"task":{}})", " | "},
                  {R"({"task":{"type":null,"index":null}})", " | "}});
}

TEST(TfConfigTest, ValidDocumentsAreReadAsTheOperatorMeantThem) {
  CheckDocuments({
      // What the Kubeflow operator writes.
      {R"({"cluster":{"ps":["dist-mnist-for-e2e-test-ps-0.default.svc:2222"],"worker":["dist-mnist-for-e2e-test-worker-0.default.svc:2222"]},"task":{"type":"worker","index":0},"environment":"cloud"})",
       "ps{0=dist-mnist-for-e2e-test-ps-0.default.svc:2222}"
       "worker{0=dist-mnist-for-e2e-test-worker-0.default.svc:2222} | worker/0"},
      {WithTask(R"({"type":"worker","index":1})"), Tasks("worker/1")},
      {WithTask(R"({"type":"ps","index":0})"), Tasks("ps/0")},
      {WithTask(R"({"type":"worker","index":"1"})"), Tasks("worker/1")},
      {WithTask(R"({"type":"worker","index":-0})"), Tasks("worker/0")},
      {WithTask(R"({"type":"worker"})"), Tasks("worker")},
      {WithTask(R"({"index":7})"), Tasks("/7")},
      {WithTask("{}"), Tasks("")},
      {WithTask(R"({"type":"evaluator","index":0})"), Tasks("evaluator/0")},
      {WithTask(R"({"type":"evaluator"})"), Tasks("evaluator")},
      {R"({"task":{"type":"worker","index":3}})", " | worker/3"},
      {R"({"cluster":{"evaluator":["e:1"],"worker":["w:1"]},"task":{"type":"evaluator","index":0}})",
       "evaluator{0=e:1}worker{0=w:1} | evaluator/0"},
      {R"({"cluster":{"chief":["c:1"],"ps":["p:1"],"worker":["w:1"]},"task":{"type":"chief","index":0}})",
       "chief{0=c:1}ps{0=p:1}worker{0=w:1} | chief/0"},
      {R"({"cluster":{"master":["c:1"],"ps":["p:1"],"worker":["w:1"]},"task":{"type":"master","index":0}})",
       "master{0=c:1}ps{0=p:1}worker{0=w:1} | master/0"},
      // Maps from indices.
      {R"({"cluster":{"ps":{"0":"p:1"},"worker":{"1":"w:2","0":"w:1"}}})", Tasks("")},
      {R"({"cluster":{"ps":["p:1"],"worker":{"1":"w:2"}},"task":{"type":"worker","index":1}})",
       "ps{0=p:1}worker{1=w:2} | worker/1 | partial"},
      {R"({"cluster":{"ps":["p:1"],"worker":{"99999":"w:2"}}})",
       "ps{0=p:1}worker{99999=w:2} |  | partial"},
      // Dynamic workers: a worker sees all ps and itself, a ps sees only itself.
      {R"({"sparseCluster":{"worker":{"3":"w:4"},"ps":["p:1","p:2"]},"task":{"type":"worker","index":3}})",
       "ps{0=p:1,1=p:2}worker{3=w:4} | worker/3 | partial"},
      {R"({"sparseCluster":{"worker":{},"ps":["p:2"]},"task":{"type":"ps","index":1}})",
       "ps{1=p:2} | ps/1 | partial"},
      {R"({"sparseCluster":{"worker":{},"ps":["p:1"]},"task":{"type":"ps","index":0}})",
       "ps{0=p:1} | ps/0 | partial"},
      {R"({"task":{"index":1,"type":"ps"},"sparseCluster":{"ps":["p:1","p:2"],"worker":{}}})",
       "ps{0=p:1,1=p:2} | ps/1 | partial"},
      // All there is: whole, as a list would be.
      {R"({"sparseCluster":{"worker":{"1":"w:2","0":"w:1"},"ps":{"0":"p:1"}},"task":{"type":"ps","index":0}})",
       Tasks("ps/0")},
      {R"({"sparseCluster":{"worker":{"0":"w:1","1":"w:2"},"ps":["p:1"]},"task":{"type":"worker","index":1}})",
       Tasks("worker/1")},
      {R"({"sparseCluster":{"worker":{"0":"w:1","2":"w:2"},"ps":["p:1"]}})",
       "ps{0=p:1}worker{0=w:1,2=w:2} |  | partial"},
      {R"({"sparseCluster":{"worker":{"0":"w:1"}}})", "worker{0=w:1} |  | partial"},
      // Addresses.
      {R"({"cluster":{"ps":["[2001:DB8::A]:2222"],"worker":["[0:0::1]:1","10.0.0.1:65535"]}})",
       "ps{0=[2001:db8::a]:2222}worker{0=[::1]:1,1=10.0.0.1:65535} | "},
      {R"({"cluster":{"worker":["A.Example:1","w:1"]}})", "worker{0=a.example:1,1=w:1} | "},
  });
}

TEST(TfConfigTest, TextThatIsNotJsonIsRefused) {
  for (const std::string document :
       {"{", "}", "[", "x", "{'a':1}", R"({"a":1,})", R"({"a" 1})", R"({"a":1}{})", R"({"a":01})",
        R"({"a":NaN})", R"({"a":1e999})", R"({"a":"\u12"})", R"({"a":"\ud800"})",
        "{\"a\":\"\xff\"}", "{\"a\":\"\xc0\xaf\"}", "{\"a\":\"\n\"}", R"({"a":tru)",
        R"({"cluster":)", "\x01"}) {
    const std::string outcome = OutcomeOf(document);
    EXPECT_THAT(outcome, StartsWith("ERROR TF_CONFIG is not JSON: at byte ")) << document;
    for (const char c : outcome) EXPECT_TRUE(c >= 0x20 && c < 0x7F) << document;
  }
}

std::string NoTasks(const std::string& job, const std::string& actual) {
  return "ERROR The tasks for job '" + job +
         "' must be a list or a dictionary from integers to strings. TF_CONFIG cluster." + job +
         " is or has " + actual;
}

TEST(TfConfigTest, WrongTypesAreNamed) {
  CheckDocuments({
      {"[]",
       "ERROR TF_CONFIG must be a JSON object, not an array: write {\"cluster\": ..., \"task\": "
       "...}"},
      {"null",
       "ERROR TF_CONFIG must be a JSON object, not the value null: write {\"cluster\": ..., "
       "\"task\": ...}"},
      {"5",
       "ERROR TF_CONFIG must be a JSON object, not a number: write {\"cluster\": ..., \"task\": "
       "...}"},
      {R"({"cluster":["h:1"]})",
       "ERROR `cluster` must be a dictionary mapping one or more job names to lists of network "
       "addresses, or a `ClusterDef` protocol buffer, not an array (in TF_CONFIG cluster)"},
      {R"({"sparseCluster":"h:1"})",
       "ERROR `cluster` must be a dictionary mapping one or more job names to lists of network "
       "addresses, or a `ClusterDef` protocol buffer, not a string (in TF_CONFIG sparseCluster)"},
      {R"({"cluster":{"ps":"h:1"}})", NoTasks("ps", "a string")},
      {R"({"cluster":{"ps":[null]}})",
       NoTasks("ps", "the value null as the 1st host: write \"host:port\"")},
      {R"({"cluster":{"worker":["h:1",["h:2"]]}})",
       NoTasks("worker", "an array as the 2nd host: write \"host:port\"")},
      {R"({"cluster":{"worker":{"a":"h:1"}}})",
       NoTasks("worker", "the index \"a\": use 0 to 99999")},
      {R"({"cluster":{"worker":{"-1":"h:1"}}})",
       NoTasks("worker", "the index \"-1\": use 0 to 99999")},
      {R"({"cluster":{"worker":{"100000":"h:1"}}})",
       NoTasks("worker", "the index \"100000\": use 0 to 99999")},
      {R"({"cluster":{"worker":{"01":"h:1"}}})",
       NoTasks("worker", "the index \"01\": use 0 to 99999")},
      {R"({"cluster":{"worker":{"0":5}}})", NoTasks("worker",
                                                    "a number as the host with the index 0: write "
                                                    "\"host:port\"")},
      {R"({"task":["worker",0]})",
       "ERROR TF_CONFIG task must be an object, not an array: write {\"type\": \"worker\", "
       "\"index\": 0}"},
      {R"({"task":{"type":5}})",
       "ERROR TF_CONFIG task.type must be a string, not a number: put it in quotes"},
      {R"({"environment":{}})",
       "ERROR TF_CONFIG environment must be a string, not an object: put it in quotes"},
      {R"({"rpc_layer":"a\nb"})",
       "ERROR TF_CONFIG rpc_layer of 3 bytes is not allowed: use at most 1024 printable ASCII "
       "characters"},
      {R"({"session_master":true})",
       "ERROR TF_CONFIG session_master must be a string, not a boolean: put it in quotes"},
  });
}

TEST(TfConfigTest, TaskIndicesAreIntegersOrDigits) {
  const auto wrong = [](const std::string& index, const std::string& shown) {
    EXPECT_EQ(OutcomeOf(R"({"task":{"type":"worker","index":)" + index + "}}"),
              "ERROR TF_CONFIG task.index must be an integer, or a string of digits, from 0 to "
              "99999, not " +
                  shown);
  };
  wrong("-1", "-1");
  wrong("0.0", "0.0");
  wrong("100000", "100000");
  wrong("18446744073709551616", "1.8446744073709552e+19");
  wrong("99999999999999999999999999999999", "1e+32");
  wrong("4294967296", "4294967296");
  wrong("true", "true");
  wrong("[0]", "an array");
  wrong("{}", "an object");
  wrong("\"x\"", "\"x\"");
  wrong("\"-1\"", "\"-1\"");
  wrong("\" 1\"", "\" 1\"");
  wrong("\"01\"", "\"01\"");
  wrong("\"1.0\"", "\"1.0\"");
  wrong("\"99999999999\"", "\"99999999999\"");
}

TEST(TfConfigTest, TheWordsOfTheReferenceProgramsComeFirst) {
  CheckDocuments({
      {R"({"task":{"type":"","index":0}})", "ERROR Must specify an explicit `job_name`"},
      {R"({"task":{"type":"ps","index":""}})", "ERROR Must specify an explicit `task_index`"},
      {WithTask(R"({"type":"walker","index":0})"),
       "ERROR Unrecognized task_type: 'walker', valid task types are: \"chief\", \"worker\", "
       "\"evaluator\" and \"ps\". (in TF_CONFIG task.type)"},
      {WithTask(R"({"type":"Worker","index":0})"),
       "ERROR Unrecognized task_type: 'Worker', valid task types are: \"chief\", \"worker\", "
       "\"evaluator\" and \"ps\". (in TF_CONFIG task.type)"},
      {WithTask(R"({"type":"chief","index":0})"),
       "ERROR `task_type` 'chief' not found in cluster_spec. TF_CONFIG cluster has ps, worker"},
      {R"({"cluster":{"worker":["w:1"],"ps":[]},"task":{"type":"ps","index":0}})",
       "ERROR `task_type` 'ps' not found in cluster_spec. TF_CONFIG cluster has worker"},
      {WithTask(R"({"type":"worker","index":2})"),
       "ERROR The `task_id` 2 exceeds the maximum id of worker. TF_CONFIG task.index is at most 1"},
      {WithTask(R"({"type":"ps","index":"1"})"),
       "ERROR The `task_id` 1 exceeds the maximum id of ps. TF_CONFIG task.index is at most 0"},
      {WithTask(R"({"type":"evaluator","index":1})"),
       "ERROR The `task_id` 1 exceeds the maximum id of evaluator. TF_CONFIG task.index is at most "
       "0"},
      {R"({"cluster":{"worker":{"0":"w:1","5":"w:2"}},"task":{"type":"worker","index":3}})",
       "ERROR Task 3 was not defined in job \"worker\": task index 3 is out of range: job "
       "\"worker\" has 2 tasks, with gaps, the last is 5 (in TF_CONFIG task.index)"},
      {R"({"sparseCluster":{"worker":{},"ps":["p:1","p:2"]},"task":{"type":"ps","index":2}})",
       "ERROR The `task_id` 2 exceeds the maximum id of ps. TF_CONFIG task.index is at most 1"},
      {R"({"sparseCluster":{"worker":{},"ps":[]},"task":{"type":"chief","index":0}})",
       "ERROR `task_type` 'chief' not found in cluster_spec. TF_CONFIG sparseCluster has no tasks"},
      {R"({"cluster":{"walker":["w:1"]}})",
       "ERROR Disallowed task type found in cluster spec. Allowed types are chief, evaluator, "
       "master, ps and worker, not \"walker\" (in TF_CONFIG cluster)"},
      {R"({"cluster":{"":["w:1"]}})",
       "ERROR Disallowed task type found in cluster spec. Allowed types are chief, evaluator, "
       "master, ps and worker, not \"\" (in TF_CONFIG cluster)"},
      {R"({"cluster":{"chief":["c:1","c:2"]}})",
       "ERROR There must be at most one 'chief' job. TF_CONFIG cluster.chief has 2 tasks: keep "
       "one"},
      {R"({"cluster":{"evaluator":["c:1","c:2","c:3"]}})",
       "ERROR There must be at most one 'evaluator' job. TF_CONFIG cluster.evaluator has 3 tasks: "
       "keep one"},
      {R"({"cluster":{"chief":["c:1"],"master":["c:2"]}})",
       "ERROR There must be at most one 'chief' job. TF_CONFIG cluster has a chief and a master, "
       "which are two names of it: keep one"},
      {R"({"cluster":{"chief":{"1":"c:1"}}})", "ERROR the only chief has index 1: give it index 0"},
      {R"({"cluster":{"ps":["p"]}})",
       "ERROR Could not parse port for local server from \"p\": write host:port with a port of 1 "
       "to 65535 (the 1st host of TF_CONFIG cluster.ps)"},
      {R"({"cluster":{"ps":["p:1"],"worker":["w:1","P:1"]}})",
       "ERROR address p:1 belongs to both ps/0 and worker/1: give each task its own (the 2nd "
       "host of TF_CONFIG cluster.worker)"},
      {R"({"cluster":{"ps":["p:1"]},"sparseCluster":{"ps":["p:1"]}})",
       "ERROR TF_CONFIG has both \"cluster\" and \"sparseCluster\": keep one of them"},
  });
}

TEST(TfConfigTest, DuplicateKeysAreRefusedAtEveryLevel) {
  const std::pair<const char*, std::string> twice[] = {
      {R"({"cluster":{},"cluster":{}})", "cluster"},
      {R"({"cluster":{"ps":["p:1"],"ps":["p:2"]}})", "ps"},
      {R"({"cluster":{"worker":{"0":"w:1","0":"w:2"}}})", "0"},
      {R"({"task":{"type":"ps","\u0074ype":"ps"}})", "type"},
      {R"({"job":[{"a":{"x\ny":1,"x\ny":1}}]})", "x?y"}};
  for (const auto& [document, key] : twice) {
    EXPECT_EQ(OutcomeOf(document),
              "ERROR TF_CONFIG has the key \"" + key + "\" twice in one object: remove one");
  }
}

TEST(TfConfigTest, OtherKeysAreListedAndIgnored) {
  const auto config = ParseTfConfig(
      R"({"job":{"args":[1,2.5,true,null,"x"]},"task":{"trial":"1","type":"ps","clou\u0007d":[]},
          "environment":"cloud","rpc_layer":"grpc","session_master":"grpc://h:1","model_dir":""})");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_THAT(config->unknown_keys,
              ::testing::UnorderedElementsAre("job", "model_dir", "task.trial", "task.clou?d"));
  EXPECT_EQ(config->environment, "cloud");
  EXPECT_EQ(config->rpc_layer, "grpc");
  EXPECT_EQ(config->session_master, "grpc://h:1");
  std::string many = "{";
  for (int i = 0; i < 1000; ++i) many += "\"k" + std::to_string(i) + "\":0,";
  const auto bounded = ParseTfConfig(many + "\"z\":0}");
  ASSERT_TRUE(bounded.ok());
  EXPECT_EQ(bounded->unknown_keys.size(), 16u);
}

TEST(TfConfigTest, NestingIsLimitedWithoutRecursion) {
  for (const std::string open : {"[", "{\"a\":"}) {
    std::string document = "{\"x\":";
    for (int i = 0; i < 100'000; ++i) document += open;
    EXPECT_EQ(OutcomeOf(document), "ERROR TF_CONFIG nests deeper than 16 levels: it takes 4");
  }
  EXPECT_EQ(OutcomeOf("{\"x\":" + std::string(15, '[') + std::string(15, ']') + "}"), " | ");
  EXPECT_THAT(OutcomeOf("{\"x\":" + std::string(16, '[') + std::string(16, ']') + "}"),
              HasSubstr("deeper than 16"));
}

TEST(TfConfigTest, SizeIsLimited) {
  std::string document(kMaxTfConfigBytes, ' ');
  document.replace(0, 2, "{}");
  EXPECT_TRUE(ParseTfConfig(document).ok());
  const auto wrong = ParseTfConfig(document + " ");
  EXPECT_EQ(wrong.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(wrong.status().message(),
            "TF_CONFIG has 1048577 bytes, more than the 1048576 bytes allowed: make it shorter");
}

TEST(TfConfigTest, AMillionBytesOfAddressesAreReadOrRefusedByTheirNumber) {
  std::string document = "{\"cluster\":{\"worker\":[";
  for (int i = 0; i < 100'001; ++i) {
    // a0:1, a1:1, ..., by a port each: 65000 per host name.
    document += "\"" + std::string(1, static_cast<char>('a' + i / 65'000)) + ":" +
                std::to_string(1 + i % 65'000) + "\",";
  }
  document.back() = ']';
  document += "}}";
  ASSERT_LE(document.size(), kMaxTfConfigBytes);
  EXPECT_EQ(OutcomeOf(document),
            "ERROR TF_CONFIG cluster.worker has 100001 tasks: a job has at most "
            "100000");
}

/// A cluster with its TF_CONFIG in both forms, written here and not by the library.
struct Generated {
  ClusterSpec spec;
  std::string dense, sparse;
};

Generated Generate(Random& random, int workers) {
  Generated g;
  int next = 0;
  const auto add = [&](const std::string& job, int count) {
    if (count == 0) return;
    std::vector<std::string> list, map;
    for (int i = 0; i < count; ++i) {
      const int number = next++;
      const std::string texts[] = {
          fmt::format("[fd00::{:.4}:1]:{}", fmt::to_string(number), 2000 + next),
          fmt::format("10.{}.{}.1:2222", next / 256, next % 256),
          fmt::format("job-{}-{}.default.svc:2222", job, number)};
      const std::string& text = texts[random.Below(3)];
      const auto address = ParseHostPort(text);
      ASSERT_TRUE(address.ok()) << text;
      ASSERT_TRUE(g.spec.Add(job, i, *address).ok()) << text;
      list.push_back(fmt::format("\"{}\"", text));
      map.push_back(fmt::format("\"{}\":\"{}\"", i, text));
    }
    for (std::size_t i = map.size(); i > 1; --i) std::swap(map[i - 1], map[random.Below(i)]);
    const char* const comma = g.dense.empty() ? "" : ", ";
    g.dense += fmt::format("{}\"{}\": [{}]", comma, job, fmt::join(list, ","));
    g.sparse += fmt::format("{}\"{}\":{{{}}}", comma, job, fmt::join(map, ","));
  };
  add("ps", 1 + static_cast<int>(random.Below(9)));
  add("worker", workers);
  add(random.Below(2) ? "chief" : "master", static_cast<int>(random.Below(2)));
  add("evaluator", static_cast<int>(random.Below(2)));
  return g;
}

TEST(TfConfigTest, GeneratedClustersComeBackFromBothForms) {
  Random random(1603);
  for (int round = 0; round < 200; ++round) {
    const Generated g =
        Generate(random, round == 0 ? 1000 : 1 + static_cast<int>(random.Below(30)));
    // Any task of the cluster, its index in either form.
    const auto job = std::next(g.spec.jobs().begin(),
                               static_cast<std::ptrdiff_t>(random.Below(g.spec.jobs().size())));
    const int index = static_cast<int>(random.Below(job->second.size()));
    const std::string quote = random.Below(2) ? "\"" : "";
    const std::string task = "\"task\":{\"type\":\"" + job->first + "\",\"index\":" + quote +
                             std::to_string(index) + quote + "}";
    for (const std::string& cluster : {g.dense, g.sparse}) {
      const auto config = ParseTfConfig("{\"cluster\":{" + cluster + "}," + task + "}");
      ASSERT_TRUE(config.ok()) << config.status().ToString();
      EXPECT_EQ(config->cluster, g.spec);
      EXPECT_EQ(config->cluster.Hash(), g.spec.Hash());
      EXPECT_EQ(config->task_type, job->first);
      EXPECT_EQ(config->task_index, index);
      EXPECT_FALSE(config->partial);
    }
  }
}

TEST(TfConfigTest, DamagedDocumentsEndInAnErrorOrADocument) {
  const std::string document =
      R"({"cluster":{"ps":["p:1"],"worker":{"0":"[::1]:1","1":"w:2"}},"task":{"type":"worker","index":"1"}})";
  const auto read = [](const std::string& damaged) { return ParseTfConfig(damaged).status(); };
  EXPECT_GT(testing::RefusedOfDamaged(document, 7, read), 10'000);
}

}  // namespace
}  // namespace passel

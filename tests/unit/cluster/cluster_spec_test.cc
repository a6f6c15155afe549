// Cluster spec, task and job ids. Golden hashes: cluster_golden.py.

#include "cluster/cluster_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex.h>
#include <unistd.h>

#include <climits>

#include "base/random.h"
#include "cluster/text.h"

namespace passel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Canonical(std::string_view text) {
  const auto address = ParseHostPort(text);
  return address.ok() ? address->ToString() : address.status().message();
}

TEST(HostPortTest, AddressesAreParsedIntoOneCanonicalForm) {
  const std::vector<std::pair<std::string, std::string>> table{
      {"localhost:2222", "localhost:2222"},
      {"LocalHost:1", "localhost:1"},
      {"10.244.2.140:65535", "10.244.2.140:65535"},
      {"tensorflow-ps-service.default.svc:2222", "tensorflow-ps-service.default.svc:2222"},
      {"my_service:80", "my_service:80"},
      {"3com.example:80", "3com.example:80"},
      {"[::1]:2222", "[::1]:2222"},
      {"[0:0:0:0:0:0:0:1]:2222", "[::1]:2222"},
      {"[2001:DB8::A]:9", "[2001:db8::a]:9"},
      {std::string(253, 'h') + ":7", std::string(253, 'h') + ":7"},
  };
  for (const auto& [text, canonical] : table) {
    EXPECT_EQ(Canonical(text), canonical);
    EXPECT_EQ(Canonical(canonical), canonical);
  }
  const auto address = ParseHostPort("[::1]:2222");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->host, "::1");
  EXPECT_EQ(address->port, 2222);
}

TEST(HostPortTest, WrongPortsAreNamedInTheWordsOfTheReferencePrograms) {
  for (const std::string text :
       {"host", "host:", "host:0", "host:65536", "host:99999999999999999999", "host:-1", "host:+1",
        "host: 1", "host:1 ", "host:01", "host:1.0", "host:0x10", "host:2222/", "host:http",
        "[::1]"}) {
    const auto address = ParseHostPort(text);
    EXPECT_EQ(address.status().code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(address.status().message(),
                StartsWith("Could not parse port for local server from \"" + text + "\""));
  }
}

TEST(HostPortTest, WrongHostsAreRefused) {
  const std::vector<std::string> hosts{":2222",
                                       "::1:2222",
                                       "[]:2222",
                                       "[::1:2222",
                                       "::1]:2222",
                                       "[::1]x:2222",
                                       "[[::1]]:2222",
                                       "[localhost]:1",
                                       "[1.2.3.4]:1",
                                       "[::1%lo]:1",
                                       "[::g]:1",
                                       "ho st:1",
                                       " host:1",
                                       "host\n:1",
                                       "h/ost:1",
                                       "-host:1",
                                       ".host:1",
                                       "a..b:1",
                                       "hôst:1",
                                       "user@host:1",
                                       "http://host:1",
                                       "10.0.0.256:1",
                                       "10.0.0:1",
                                       "1:1",
                                       "1.2.3.4.5:1",
                                       "010.0.0.1:1",
                                       std::string(254, 'h') + ":1",
                                       std::string("ho\0st:1", 7),
                                       std::string("10.0.0.1\0:1", 11),
                                       "%n%n:1",
                                       "$(id):1"};
  for (const std::string& text : hosts) {
    const auto address = ParseHostPort(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(address.status().message(), StartsWith("the host of address "));
    for (const char c : address.status().message()) EXPECT_TRUE(c >= 0x20 && c < 0x7F) << text;
  }
  EXPECT_THAT(ParseHostPort("").status().message(), StartsWith("an address is empty"));
}

TEST(OrdinalTest, CountsAsPeopleDo) {
  const std::vector<std::pair<std::size_t, const char*>> cases{
      {1, "1st"},   {2, "2nd"},   {3, "3rd"},   {4, "4th"},     {10, "10th"},   {11, "11th"},
      {12, "12th"}, {13, "13th"}, {21, "21st"}, {102, "102nd"}, {111, "111th"}, {1003, "1003rd"}};
  for (const auto& [number, text] : cases) EXPECT_EQ(Ordinal(number), text);
}

TEST(HostPortTest, AListHasNoEmptyElement) {
  const auto hosts = ParseHostList("a:1,b:2,[::1]:3");
  ASSERT_TRUE(hosts.ok());
  ASSERT_EQ(hosts->size(), 3u);
  EXPECT_EQ((*hosts)[1].ToString(), "b:2");
  EXPECT_EQ((*hosts)[2].ToString(), "[::1]:3");
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"", "1st"},     {",", "1st"},        {"a:1,", "2nd"},
      {",a:1", "1st"}, {"a:1,,b:2", "2nd"}, {"a:1,b:2,", "3rd"}};
  for (const auto& [text, which] : wrong) {
    EXPECT_EQ(
        ParseHostList(text).status().message(),
        "the " + which + " host of the list \"" + text + "\" is empty: write host:port,host:port");
  }
  EXPECT_FALSE(ParseHostList("a:1, b:2").ok());
  EXPECT_FALSE(ParseHostList("a:1;b:2").ok());
}

ClusterSpec Spec(std::string_view ps, std::string_view worker) {
  auto spec = ClusterSpec::FromHostLists(ps, worker);
  EXPECT_TRUE(spec.ok()) << spec.status().ToString();
  return spec.ok() ? *spec : ClusterSpec();
}

TEST(ClusterSpecTest, HostListsBecomePsAndWorkerTasks) {
  const ClusterSpec spec = Spec("localhost:2222", "localhost:2223,localhost:2224");
  EXPECT_EQ(spec.num_tasks("ps"), 1);
  EXPECT_EQ(spec.num_tasks("worker"), 2);
  EXPECT_EQ(spec.num_tasks("chief"), 0);
  EXPECT_EQ(spec.Address({"worker", 1})->ToString(), "localhost:2224");
  EXPECT_TRUE(spec.Validate().ok());
  EXPECT_EQ(spec.CanonicalText(), "ps{0=localhost:2222}worker{0=localhost:2223,1=localhost:2224}");
}

TEST(ClusterSpecTest, MissingListsHaveTheWordsOfTheReferencePrograms) {
  EXPECT_EQ(ClusterSpec::FromHostLists("", "w:1").status().message(),
            "Must specify an explicit `ps_hosts`");
  EXPECT_EQ(ClusterSpec::FromHostLists("p:1", "").status().message(),
            "Must specify an explicit `worker_hosts`");
}

TEST(ClusterSpecTest, OneAddressBelongsToOneTask) {
  for (const auto& [ps, worker] : {std::pair<std::string, std::string>{"a:1", "b:1,A:1"},
                                   {"a:1,a:1", "b:1"},
                                   {"[::1]:5", "[0::1]:5"}}) {
    const auto spec = ClusterSpec::FromHostLists(ps, worker);
    EXPECT_EQ(spec.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(spec.status().message(), HasSubstr("belongs to both"));
  }
  EXPECT_EQ(ClusterSpec::FromHostLists("a:1", "b:1,A:1").status().message(),
            "address a:1 belongs to both ps/0 and worker/1: give each task its own");
  EXPECT_TRUE(ClusterSpec::FromHostLists("a:1", "a:2,b:1").ok());
}

TEST(ClusterSpecTest, OneTaskHasOneAddress) {
  ClusterSpec spec = Spec("p:1", "w:1");
  const ClusterSpec before = spec;
  EXPECT_EQ(spec.Add("worker", 0, *ParseHostPort("x:1")).message(),
            "JobDef for job \"worker\" specified two addresses for task \"0\": w:1 and x:1");
  EXPECT_FALSE(spec.Add("worker", 1, *ParseHostPort("p:1")).ok());
  EXPECT_FALSE(spec.Add("worker", -1, *ParseHostPort("x:1")).ok());
  EXPECT_FALSE(spec.Add("worker", 100'000, *ParseHostPort("x:1")).ok());
  for (const std::string job : {"", "9", "_a", "a-b", "a b", "a/b", "ä"}) {
    EXPECT_THAT(spec.Add(job, 0, *ParseHostPort("x:1")).message(), HasSubstr("is not a job name"));
  }
  EXPECT_FALSE(spec.Add(std::string(33, 'a'), 0, *ParseHostPort("x:1")).ok());
  EXPECT_EQ(spec, before);
  EXPECT_TRUE(spec.Add("worker", 1, *ParseHostPort("x:1")).ok());
  EXPECT_NE(spec, before);
}

TEST(ClusterSpecTest, AThousandWorkersAreTasksLikeAnyOther) {
  std::string workers;
  for (int i = 0; i < 1000; ++i) {
    workers += (i ? ",host-" : "host-") + std::to_string(i) + ":2222";
  }
  const ClusterSpec spec = Spec("ps:1", workers);
  EXPECT_EQ(spec.num_tasks("worker"), 1000);
  EXPECT_EQ(spec.Address({"worker", 999})->ToString(), "host-999:2222");
}

TEST(ClusterSpecTest, ValidationCountsTheRoles) {
  const auto make = [](std::vector<std::pair<std::string, int>> tasks) {
    ClusterSpec spec;
    std::uint16_t port = 1;
    for (const auto& [job, index] : tasks) {
      EXPECT_TRUE(spec.Add(job, index, HostPort{"h", port++}).ok());
    }
    return spec.Validate().message();
  };
  EXPECT_EQ(make({{"ps", 0}, {"worker", 0}}), "");
  EXPECT_EQ(make({{"ps", 0}, {"worker", 0}, {"chief", 0}, {"evaluator", 0}}), "");
  EXPECT_EQ(make({{"worker", 0}}), "There must be at least one ps.");
  EXPECT_EQ(make({{"ps", 0}}), "There must be at least one worker.");
  EXPECT_EQ(make({{"ps", 0}, {"worker", 0}, {"chief", 0}, {"master", 0}}),
            "the cluster has 2 chiefs: name at most one");
  EXPECT_EQ(make({{"ps", 0}, {"worker", 0}, {"evaluator", 0}, {"evaluator", 1}}),
            "the cluster has 2 evaluators: name at most one");
  EXPECT_THAT(make({{"ps", 0}, {"worker", 0}, {"walker", 0}}),
              StartsWith("Unrecognized task_type: \"walker\""));
  EXPECT_EQ(make({{"ps", 0}, {"worker", 0}, {"chief", 1}}),
            "the only chief has index 1: give it index 0");
  EXPECT_EQ(make({{"ps", 0}, {"worker", 0}, {"evaluator", 2}}),
            "the only evaluator has index 2: give it index 0");
  EXPECT_EQ(make({{"ps", 0}, {"worker", 0}, {"worker", 2}}),
            "job \"worker\" has 2 tasks but the last has index 2: number them from 0 to 1");
  EXPECT_EQ(make({{"ps", 1}, {"worker", 0}}),
            "job \"ps\" has 1 task but the last has index 1: number them from 0 to 0");
}

TEST(ClusterSpecTest, TheChiefIsTheChiefTaskOrWorkerZero) {
  ClusterSpec spec = Spec("p:1", "w:1,w:2");
  EXPECT_TRUE(spec.IsChief({"worker", 0}));
  EXPECT_FALSE(spec.IsChief({"worker", 1}));
  EXPECT_FALSE(spec.IsChief({"ps", 0}));
  EXPECT_FALSE(spec.IsChief({"evaluator", 0}));
  ASSERT_TRUE(spec.Add("chief", 0, *ParseHostPort("c:1")).ok());
  EXPECT_TRUE(spec.IsChief({"chief", 0}));
  EXPECT_FALSE(spec.IsChief({"worker", 0}));
}

TEST(ClusterSpecTest, TheHashIsFixedAndSeesTheOrder) {
  EXPECT_EQ(Spec("localhost:2222", "localhost:2223,localhost:2224").Hash(), 0xc85026fd44cc113d);
  EXPECT_EQ(Spec("localhost:2222", "localhost:2224,localhost:2223").Hash(), 0x477c8a688f88df1f);
  EXPECT_EQ(Spec("[0::1]:1", "10.0.0.1:65535").Hash(), 0xa4fc167242c584b7);
  EXPECT_EQ(JobIdFromSpec(Spec("[0::1]:1", "10.0.0.1:65535")), "job-d18436ddb6c1186d");
  // Tasks that were given other workers still meet, so that they can be told.
  EXPECT_EQ(JobIdFromSpec(Spec("[::1]:1,localhost:7", "10.0.0.2:9")), "job-d18436ddb6c1186d");
  EXPECT_EQ(JobIdFromSpec(Spec("localhost:2222", "localhost:2223")), "job-db637b0ed925c728");
  // A gap is another cluster than none.
  ClusterSpec sparse;
  ASSERT_TRUE(sparse.Add("worker", 1, *ParseHostPort("h:1")).ok());
  ClusterSpec dense;
  ASSERT_TRUE(dense.Add("worker", 0, *ParseHostPort("h:1")).ok());
  EXPECT_NE(sparse.Hash(), dense.Hash());
}

TEST(TaskIdTest, FlagsNameATaskOfTheClusterOrSayWhatIsWrong) {
  const ClusterSpec spec = Spec("p:1", "w:1,w:2");
  const auto task = ResolveTask(spec, "worker", 1);
  ASSERT_TRUE(task.ok());
  EXPECT_EQ(*task, (TaskId{"worker", 1}));
  EXPECT_TRUE(ResolveTask(spec, "ps", 0).ok());
  const auto error = [&](std::string_view job, std::optional<int> index) {
    const auto wrong = ResolveTask(spec, job, index);
    EXPECT_EQ(wrong.status().code(), Code::kInvalidArgument);
    return wrong.status().message();
  };
  EXPECT_EQ(error("", 0), "Must specify an explicit `job_name`");
  EXPECT_EQ(error("", std::nullopt), "Must specify an explicit `job_name`");
  EXPECT_EQ(error("worker", std::nullopt), "Must specify an explicit `task_index`");
  EXPECT_EQ(error("worker", 3),
            "Task 3 was not defined in job \"worker\": task index 3 is out of range: job "
            "\"worker\" has 2 tasks");
  EXPECT_EQ(error("worker", -1),
            "Task -1 was not defined in job \"worker\": task index -1 is out of range: job "
            "\"worker\" has 2 tasks");
  EXPECT_EQ(error("ps", 1),
            "Task 1 was not defined in job \"ps\": task index 1 is out of range: job \"ps\" has 1 "
            "task");
  EXPECT_EQ(error("chief", 0), "Job \"chief\" was not defined in cluster: it has ps, worker");
  EXPECT_EQ(ResolveTask(ClusterSpec(), "ps", 0).status().message(),
            "Job \"ps\" was not defined in cluster: it has no jobs");
  ClusterSpec sparse;
  ASSERT_TRUE(sparse.Add("worker", 0, *ParseHostPort("h:1")).ok());
  ASSERT_TRUE(sparse.Add("worker", 5, *ParseHostPort("h:2")).ok());
  EXPECT_TRUE(ResolveTask(sparse, "worker", 5).ok());
  EXPECT_THAT(ResolveTask(sparse, "worker", 1).status().message(),
              HasSubstr("has 2 tasks, with gaps, the last is 5"));
}

TEST(JobIdTest, OnlyHarmlessNamesAreAccepted) {
  for (const std::string id : {"a", "9", "mnist", "Job-1_b.c", "a..", "a-"}) {
    EXPECT_TRUE(ValidateJobId(id).ok()) << id;
  }
  EXPECT_TRUE(ValidateJobId(std::string(48, 'a')).ok());
  const std::vector<std::string> wrong{"",
                                       ".",
                                       "..",
                                       "-a",
                                       "_a",
                                       "a/b",
                                       "../a",
                                       "/a",
                                       "a b",
                                       "%n",
                                       "a%n",
                                       "ä",
                                       "a\n",
                                       std::string("a\0b", 3),
                                       std::string(1, '\0'),
                                       std::string(49, 'a'),
                                       std::string(300, 'a')};
  for (const std::string& id : wrong) {
    const Status status = ValidateJobId(id);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << id;
    EXPECT_LT(status.message().size(), 250u);
    for (const char c : status.message()) EXPECT_TRUE(c >= 0x20 && c < 0x7F) << id;
  }
  EXPECT_TRUE(ValidateJobId(JobIdFromSpec(ClusterSpec())).ok());
}

TEST(JobIdTest, TenThousandGeneratedNamesAreJudgedAsTheGrammarSays) {
  regex_t grammar;
  ASSERT_EQ(::regcomp(&grammar, "^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$", REG_EXTENDED | REG_NOSUB), 0);
  const std::vector<std::string> pieces{"..", "/",    std::string(1, '\0'),
                                        "é",  "\xff", "-",
                                        "_",  ".",    "%n",
                                        "%s", " ",    "\n",
                                        "\\", "~",    "$",
                                        "a",  "B",    "7",
                                        "job"};
  Random random(28);
  int accepted = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string id;
    // Half of the names from harmless pieces alone, so that many are legal; some very long.
    const bool harmless = random.Below(2) == 0;
    const std::uint64_t length = random.Below(20) == 0 ? 300 : random.Below(60);
    while (id.size() < length) {
      if (harmless) {
        id += "abzAZ09._-"[random.Below(10)];
      } else {
        id += pieces[random.Below(pieces.size())];
      }
    }
    const bool legal =
        id.find('\0') == std::string::npos && ::regexec(&grammar, id.c_str(), 0, nullptr, 0) == 0;
    ASSERT_EQ(ValidateJobId(id).ok(), legal) << ::testing::PrintToString(id);
    accepted += legal ? 1 : 0;
  }
  ::regfree(&grammar);
  EXPECT_GT(accepted, 2000);
  EXPECT_LT(accepted, 8000);
}

TEST(IsLocalHostTest, LoopbackAndTheOwnNameAreLocalAndNothingElseIs) {
  for (const std::string host : {"localhost", "LOCALHOST", "127.0.0.1", "127.255.255.254", "::1",
                                 "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(IsLocalHost(host)) << host;
  }
  const std::vector<std::string> others{"",
                                        "localhost.example",
                                        "notlocalhost",
                                        "128.0.0.1",
                                        "126.255.255.255",
                                        "192.0.2.1",
                                        "0.0.0.0",
                                        "127.0.0.1.example",
                                        "127",
                                        "127.1",
                                        "::",
                                        "::2",
                                        "2001:db8::1",
                                        "[::1]",
                                        "::ffff:192.0.2.1",
                                        "example.com",
                                        std::string("localhost\0", 10)};
  for (const std::string& host : others) EXPECT_FALSE(IsLocalHost(host)) << host;
  char own[HOST_NAME_MAX + 1] = {};
  ASSERT_EQ(::gethostname(own, sizeof own - 1), 0);
  EXPECT_TRUE(IsLocalHost(own));
  EXPECT_FALSE(IsLocalHost(std::string(own) + "x"));
}

}  // namespace
}  // namespace passel

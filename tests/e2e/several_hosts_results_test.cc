// What training over a cable comes to, and what can be read on that cable.

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <thread>

#include "base/file_descriptor.h"
#include "e2e/hosts_job.h"
#include "io/tensor_file.h"
#include "support/read_events.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

class SeveralHostsResultsTest : public SeveralHostsTest {};

// All that goes over the cable, as long as it lives.
class Capture {
 public:
  Capture() : socket_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL))) {
    sockaddr_ll cable = {};
    cable.sll_family = AF_PACKET;
    cable.sll_protocol = htons(ETH_P_ALL);
    cable.sll_ifindex = static_cast<int>(::if_nametoindex("cable"));
    const int room = 256 << 20;
    const timeval turn = {.tv_sec = 0, .tv_usec = 50'000};
    ready_ = ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&cable), sizeof cable) == 0 &&
             ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) == 0 &&
             ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &turn, sizeof turn) == 0;
    thread_ = std::thread([this] {
      std::string frame(1 << 17, '\0');
      for (;;) {
        const ssize_t size = ::recv(socket_.get(), frame.data(), frame.size(), 0);
        if (size > 0) bytes_.append(frame, 0, static_cast<std::size_t>(size));
        if (size <= 0 && quit_) return;  // and none is left
      }
    });
  }
  bool ready() const { return ready_; }
  std::string Bytes() {
    quit_ = true;
    if (thread_.joinable()) thread_.join();
    return std::move(bytes_);
  }
  ~Capture() { (void)Bytes(); }

 private:
  FileDescriptor socket_;
  bool ready_ = false;
  std::string bytes_;
  std::atomic<bool> quit_{false};
  std::thread thread_;
};

// The values that the chief saves at the end went over the cable. Sent over it as they are, the
// same capture finds them.
TEST_F(SeveralHostsResultsTest, OnTheCableNoParameterCanBeRead) {
  HostsJob job(*hosts_, 1, 1, {"worker/0"}, {"--train_steps=40", "--start_wait=20"});
  const std::string model = job.sandbox().dir().File("m");
  Capture training;
  if (!training.ready()) GTEST_SKIP() << "nothing can be captured here";
  job.StartAll({"--save=" + model});
  job.ExpectEnd();
  const std::string bytes = training.Bytes();
  EXPECT_GT(bytes.size(), 40u * 79'510 * 4) << "gradients at least";
  const Result<TensorFile> file = TensorFile::Open(model);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const TensorFile::Tensor* const biases = file->Find("hid_b");
  ASSERT_NE(biases, nullptr);
  ASSERT_EQ(biases->bytes, 400u);
  std::string values(400, '\0');  // a message may be cut into frames: not within each piece
  ASSERT_TRUE(file->Read(*biases, 0, std::as_writable_bytes(std::span(values))).ok());
  WriteText(model + ".values", values);
  Capture sent;
  const std::string send = fmt::format("cat {}.values > /dev/udp/{}/9", model, TwoHosts::kHere);
  Program sender = job.sandbox().StartCommand(
      {"/usr/bin/env", "nsenter", "--net=" + hosts_->other_host(), "bash", "-c", send});
  EXPECT_EQ(job.sandbox().Finish(sender).code, 0);
  const std::string clear = sent.Bytes();
  for (std::size_t begin = 0; begin < values.size(); begin += 40) {
    const std::string piece = values.substr(begin, 40);
    EXPECT_NE(clear.find(piece), std::string::npos);
    EXPECT_EQ(bytes.find(piece), std::string::npos);
  }
  EXPECT_EQ(bytes.find(ReadText(job.token())), std::string::npos);
}

// Over libfabric all who are on the way can read them, but nothing goes out to who has not proved
// the token: the whole of what a stranger is told is smaller than a part of the values.
TEST_F(SeveralHostsResultsTest, OverLibfabricAStrangerIsSentNoParameter) {
  HostsJob job(*hosts_, 1, 2, {"worker/1"}, With(kEndless, {"--fabric_provider=tcp;ofi_rxm"}));
  job.Start("ps/0");
  job.Start("worker/0");
  ASSERT_TRUE(job["worker/0"].WaitFor("Session initialization complete")) << job["worker/0"].Err();
  const std::string other = job.sandbox().dir().File("other_token");
  WriteText(other, std::string(32, 'x'));
  ASSERT_EQ(::chmod(other.c_str(), 0400), 0);
  std::size_t told[2] = {};
  for (const bool proves : {false, true}) {
    Capture cable;
    if (!cable.ready()) GTEST_SKIP() << "nothing can be captured here";
    if (proves) {
      job.Start("worker/1");
      ASSERT_TRUE(job["worker/1"].WaitFor("Session initialization complete"))
          << job["worker/1"].Err();
      job.Stop();  // else it would go on and on
      job.ExpectEnd(130);
    } else {
      job.StartBare("worker/1", {"--token_file=" + other});
      EXPECT_THAT(job.OnlyErrorOf("worker/1", 2), HasSubstr("token"));
    }
    told[proves] = cable.Bytes().size();
  }
  EXPECT_GT(told[0], 100u) << "it came to the door";
  EXPECT_LT(told[0], 50'000u);
  EXPECT_GT(told[1], 79'510u * 4) << "all values";
}

// What TensorBoard shows of a chief that has values, gradients and counters of its own alone.
void ExpectSummaries(const std::string& folder) {
  const std::vector<std::string> files = test::EventFilesIn(folder);
  ASSERT_EQ(files.size(), 1u);
  for (const char* const tag :
       {"loss", "accuracy", "learning_rate", "global_step/sec", "staleness", "waiting", "dropped",
        "variables/hid_w", "variables/sm_b", "gradients/hid_w"}) {
    EXPECT_FALSE(test::StepsOfTag(files[0], tag).empty()) << tag;
  }
  EXPECT_GE(test::StepsOfTag(files[0], "loss").size(), 3u);
  EXPECT_TRUE(std::filesystem::exists(folder + "/graph.pbtxt"));
}

// A chief that has no memory to save pulls the values once more.
TEST_F(SeveralHostsResultsTest, AJobThatIsStoppedSavesItsModelAndWritesSummaries) {
  for (const std::string mode : {"hogwild", "barrier", "replicas", "ssp"}) {
    SCOPED_TRACE(mode);
    HostsJob job(*hosts_, 1, 2, {"worker/0", "worker/1"},
                 {"--mode=" + mode, "--train_steps=100000000", "--start_wait=20"});
    const std::string model = job.sandbox().dir().File("m");
    const std::string logs = job.sandbox().dir().File("logs");
    job.StartAll(
        {"--save=" + model, "--logs_dir=" + logs, "--summary_steps=5", "--histogram_secs=0.05"});
    ASSERT_TRUE(job["worker/1"].WaitFor("Session initialization complete"));
    ASSERT_TRUE(job["worker/0"].WaitFor("writing summaries"));
    // Rates are of two looks, a quarter of a second apart.
    ASSERT_TRUE(test::AwaitTag(logs, "staleness", Deadline::After(Scaled(20))));
    ASSERT_TRUE(job.sandbox().Advances(20));
    job.Stop();
    job.ExpectEnd(130);
    ExpectSummaries(logs);
    EXPECT_THAT(job["worker/0"].Err(), HasSubstr("Saved " + model));
    EXPECT_EQ(job.sandbox().Eval(model), 0);
  }
}

// Of a job by hand, by the ps that knows it, also where all workers are elsewhere.
TEST_F(SeveralHostsResultsTest, Ps0ReportsOfTheJob) {
  for (const bool stopped : {false, true}) {
    SCOPED_TRACE(stopped ? "stopped" : "done");
    HostsJob job(*hosts_, 2, 2, {"ps/1", "worker/0", "worker/1"},
                 {"--mode=ssp", "--start_wait=20",
                  stopped ? "--train_steps=100000000" : "--train_steps=300"});
    const std::string path = job.sandbox().dir().File("report.json");
    job.Start("worker/0", {"--report=" + path});
    EXPECT_THAT(job.OnlyErrorOf("worker/0"),
                ::testing::AllOf(HasSubstr("--report is for ps/0"), HasSubstr("worker/0")));
    job.Start("ps/0", {"--report=" + path});
    for (const char* task : {"ps/1", "worker/0", "worker/1"}) job.Start(task);
    if (stopped) {
      ASSERT_TRUE(job["worker/1"].WaitFor("Session initialization complete"));
      ASSERT_TRUE(job.sandbox().Advances(20));
      job.Stop();
    }
    job.ExpectEnd(stopped ? 130 : 0);
    const auto report = nlohmann::json::parse(ReadText(path));
    EXPECT_EQ(report["format"], 1);
    EXPECT_EQ(report["job"], job.job_id());
    EXPECT_EQ(report["ps"], 2);
    EXPECT_EQ(report["exit_code"], stopped ? 130 : 0);
    EXPECT_EQ(report["interrupted"], stopped);
    EXPECT_EQ(report["model"], "mlp");
    EXPECT_EQ(report["modes"][0]["mode"], "ssp=3");
    EXPECT_TRUE(report["test_accuracy"].is_null());
    ASSERT_EQ(report["workers"].size(), 2u);
    std::int64_t local = 0;
    for (const auto& worker : report["workers"]) {
      EXPECT_GT(worker["local_steps"].get<int>(), 0);
      EXPECT_EQ(worker["exit"], "done");
      local += worker["local_steps"].get<std::int64_t>();
    }
    EXPECT_EQ(report["local_steps"], local);
    if (!stopped) {
      EXPECT_GE(report["global_step"].get<int>(), 300);
    }
    ASSERT_FALSE(report["curve"].empty());
    EXPECT_EQ(report["curve"].back()["global_step"], report["global_step"]);
    EXPECT_GT(report["training_seconds"].get<double>(), 0);
    EXPECT_EQ(report["run"]["changed"]["report"], path);
  }
}

// The gradient of a step is on its way while the next one is computed.
TEST_F(SeveralHostsResultsTest, PrefetchTrainsWithAStalenessOfOne) {
  HostsJob job(*hosts_, 1, 1, {"worker/0"},
               {"--mode=hogwild", "--prefetch", "--train_steps=100000000", "--start_wait=20"});
  const std::string model = job.sandbox().dir().File("m");
  job.StartAll({"--save=" + model});
  ASSERT_TRUE(job.sandbox().Advances(1500)) << job["worker/0"].Err();
  EXPECT_EQ(job.sandbox().Status()["arena"]["staleness"]["p50"], 1);
  job.Stop();
  job.ExpectEnd(130);
  const std::string report = job.sandbox().dir().File("eval.json");
  const Outcome outcome = job.sandbox().Run(
      {"eval", "--model=" + model, "--data_dir=" + Digits(), "--report=" + report});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GE(ReadJson(report).value("accuracy", 0.0), 0.9);
}

class SlowSeveralHostsResultsTest : public SeveralHostsResultsTest {
 protected:
  void SetUp() override {
    SeveralHostsResultsTest::SetUp();
    if (IsSkipped()) return;
    mnist_ = SharedDataDir("mnist");
    if (!mnist_) GTEST_SKIP() << "no ../shared/data/mnist";
  }
  // On the test set.
  double AccuracyOf(Sandbox& sandbox, const std::string& model) {
    const std::string report = sandbox.dir().File("eval.json");
    const Outcome outcome =
        sandbox.Run({"eval", "--model=" + model, "--data_dir=" + *mnist_, "--report=" + report});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return ReadJson(report).value("accuracy", 0.0);
  }
  std::optional<std::string> mnist_;
};

// ps on one host, two workers on the other: the mean of three seeds.
TEST_F(SlowSeveralHostsResultsTest, MnistReaches975) {
  for (const std::string mode : {"hogwild", "barrier", "replicas"}) {
    double sum = 0;
    for (int seed = 1; seed <= 3; ++seed) {
      HostsJob job(*hosts_, 1, 2, {"worker/0", "worker/1"},
                   {"--mode=" + mode, fmt::format("--seed={}", seed), "--start_wait=20"});
      const std::string model = job.sandbox().dir().File("m");
      job.StartAll({"--data_dir=" + *mnist_, "--save=" + model});
      for (const char* task : {"worker/0", "worker/1", "ps/0"}) {
        EXPECT_EQ(job.Finish(task, 300).code, 0) << task << job[task].Err();
      }
      sum += AccuracyOf(job.sandbox(), model);
    }
    fmt::print("{}: {:.4f}\n", mode, sum / 3);
    EXPECT_GE(sum / 3, 0.975) << mode;
  }
}

// The programs as their authors ran them, on three hosts: mnist_replica with its lists in flags,
// the Adagrad program with its hosts in the environment of its pods.
TEST_F(SlowSeveralHostsResultsTest, TheProgramsOfThreeHostsRunToTheirResults) {
  const std::string third = hosts_->third_host();
  ASSERT_NE(third, "");
  const std::string ps_hosts = fmt::format("{}:2222", TwoHosts::kHere);
  const std::string worker_hosts =
      fmt::format("{}:2222,{}:2222", TwoHosts::kThere, TwoHosts::kThird);
  const auto run = [&](Sandbox& sandbox, const std::string& preset, bool by_environment) {
    std::vector<std::string> flags = {"task",
                                      "--preset=" + preset,
                                      "--job_id=" + sandbox.job(),
                                      "--data_dir=" + *mnist_,
                                      "--start_wait=20",
                                      "--token_file=" + sandbox.dir().File("token")};
    if (by_environment) {
      sandbox.SetEnv("PS_KEY", ps_hosts);
      sandbox.SetEnv("WORKER_KEY", worker_hosts);
    } else {
      flags = With(flags, {"--ps_hosts=" + ps_hosts, "--worker_hosts=" + worker_hosts});
    }
    const auto start = [&](const std::string& host, const std::string& name, int index,
                           const std::vector<std::string>& more) {
      std::vector<std::string> command;
      if (!host.empty()) command = {"/usr/bin/env", "nsenter", "--net=" + host};
      command.push_back(PASSEL_PROGRAM);
      const std::vector<std::string> place = {"--job_name=" + name,
                                              fmt::format("--task_index={}", index)};
      return sandbox.StartCommand(With(With(With(command, flags), place), more));
    };
    Program ps = start("", "ps", 0, {});
    EXPECT_TRUE(ps.WaitFor(" is ready for its workers")) << ps.Err();
    const std::string model = sandbox.dir().File("m");
    Program chief = start(hosts_->other_host(), "worker", 0, {"--save=" + model});
    Program other = start(third, "worker", 1, {});
    for (Program* program : {&chief, &other, &ps}) {
      EXPECT_EQ(sandbox.Finish(*program, 300).code, 0) << program->Err();
    }
    for (const Program* worker : {&chief, &other}) {
      EXPECT_THAT(worker->Err(), HasSubstr("travel by TCP, sealed"));
    }
    const double accuracy = AccuracyOf(sandbox, model);
    fmt::print("{}: {:.4f}\n", preset, accuracy);
    return accuracy;
  };
  Sandbox replica, adagrad;
  EXPECT_GE(run(replica, "mnist-replica", false), 0.90);  // 200 steps
  EXPECT_GE(run(adagrad, "k8s-adagrad", true), 0.95);     // 10,000
}

}  // namespace
}  // namespace passel::testing

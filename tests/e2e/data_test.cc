// `passel data`, --download_only, and one --data_dir for every format, as users see them.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <optional>

#include "data/dataset.h"
#include "data/idx.h"
#include "support/program.h"
#include "support/sanitized.h"
#include "unit/data/format_files.h"
#include "unit/data/http_server.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// In KiB. A sanitizer reserves terabytes of address space.
constexpr const char* kMemoryLimit = kSanitized ? "" : "ulimit -v 1048576; ";

// Digits() once more, in the other formats.
class DataTest : public ::testing::Test {
 protected:
  DataTest() : digits_(*OwnedDataset::Load(Digits())) {}

  // A directory with them.
  std::string Make(const test::Writer& writer) {
    const std::string dir = sandbox_.dir().File(writer.format);
    std::filesystem::create_directory(dir);
    writer.write(dir, test::Copy(*digits_));
    return dir;
  }
  std::string MakeCsv() { return Make({"csv", test::WriteCsv, false}); }
  // What `passel data check` prints, but for the first line, which names the place.
  std::string Check(const std::string& path, std::vector<std::string> more = {}) {
    std::vector<std::string> all = {"data", "check", "--data_dir=" + path};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = sandbox_.Run(all);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out.substr(std::min(outcome.out.size(), outcome.out.find('\n')));
  }
  std::string Refusal(const std::vector<std::string>& arguments) {
    const Outcome outcome = sandbox_.Run(arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.errors.size(), 1u) << outcome.err;
    return outcome.errors.empty() ? "" : outcome.errors[0];
  }

  Sandbox sandbox_;
  const OwnedDataset digits_;
};

TEST_F(DataTest, EveryFormatHoldsTheSameAndTrainsTheSame) {
  const std::string idx = Check(Digits());
  EXPECT_THAT(idx, HasSubstr("train          6000 images"));
  EXPECT_THAT(idx, HasSubstr("validation        0 images"));
  EXPECT_THAT(idx, HasSubstr("test           1000 images"));
  std::optional<double> loss;
  for (const test::Writer& writer : test::kWriters) {
    const std::string path = Make(writer);
    EXPECT_EQ(Check(path), idx);
    const std::string report = sandbox_.dir().File("r.json");
    const Outcome outcome =
        sandbox_.Run({"train", "--ps=0", "--workers=1", "--train_steps=20", "--data_dir=" + path,
                      "--job_id=" + sandbox_.job(), "--report=" + report});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto reported = ReadJson(report)["test_loss"].get<double>();
    EXPECT_EQ(reported, loss.value_or(reported)) << writer.format;
    loss = reported;
  }
}

TEST_F(DataTest, CsvLimitsCutWhatIsReadEverywhere) {
  const std::string csv = MakeCsv();
  const std::vector<std::string> limits = {"--csv_train_limit=700", "--csv_test_limit=300"};
  std::vector<std::string> check = limits;
  check.push_back("--validation_size=100");
  const std::string cut = Check(csv, check);
  EXPECT_THAT(cut, HasSubstr("train           600 images"));
  EXPECT_THAT(cut, HasSubstr("validation      100 images"));
  EXPECT_THAT(cut, HasSubstr("test            300 images"));
  const auto train = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"train", "--data_dir=" + csv, "--job_id=" + sandbox_.job(),
                                    "--batch_size=701", "--train_steps=2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  EXPECT_EQ(sandbox_.Run(train({})).code, 0);
  EXPECT_THAT(Refusal(train(limits)), HasSubstr("700"));
  EXPECT_THAT(Refusal(train({"--csv_train_limit=-1"})), HasSubstr("--csv_train_limit"));
  EXPECT_THAT(Refusal({"data", "check", "--csv_test_limit=-7"}), HasSubstr("--csv_test_limit"));
}

// 10,000 white images of class 0 in each set, for whoever can be given a --data_dir.
TEST_F(DataTest, FakeDataIsMadeUpWhereverItIsAsked) {
  const Outcome check = sandbox_.Run({"data", "check", "--fake_data", "--validation_size=7"});
  EXPECT_EQ(check.code, 0) << check.err;
  for (const char* set : {"train     ", "validation", "test      "}) {
    EXPECT_THAT(check.out, HasSubstr(std::string(set) +
                                     "    10000 images, by class: 10000 0 0 0 0 0 0 0 0 0\n"));
  }
  const std::string report = sandbox_.dir().File("r.json");
  const std::vector<std::string> job = {"--fake_data", "--train_steps=30",
                                        "--job_id=" + sandbox_.job()};
  const auto with = [&](std::vector<std::string> command) {
    command.insert(command.end(), job.begin(), job.end());
    return command;
  };
  const Outcome train =
      sandbox_.Run(with({"train", "--preset=mnist-replica", "--report=" + report}));
  EXPECT_EQ(train.code, 0) << train.err;
  EXPECT_THAT(train.err, HasSubstr("made-up data"));
  EXPECT_EQ(ReadJson(report)["data"], "fake_data");
  EXPECT_EQ(ReadJson(report)["test_accuracy"], 1.0) << "there is one image only";
  const std::vector<std::string> hosts = {"--ps_hosts=localhost:1", "--worker_hosts=localhost:2"};
  std::vector<std::string> ps = with({"task", "--job_name=ps", "--task_index=0"});
  std::vector<std::string> worker = with({"task", "--job_name=worker", "--task_index=0"});
  for (auto* task : {&ps, &worker}) task->insert(task->end(), hosts.begin(), hosts.end());
  Program server = sandbox_.Start(ps);
  const Outcome outcome = sandbox_.Run(worker, 20);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("final accuracy = 1"));
  EXPECT_EQ(sandbox_.Finish(server, 10).code, 0);
  EXPECT_THAT(Refusal({"train", "--fake_data", "--data_dir=" + Digits()}), HasSubstr("omit one"));
  EXPECT_THAT(Refusal({"train", "--fake_data", "--download_only"}), HasSubstr("omit one"));
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(DataTest, AnUrlThatIsNoneIsNamedEverywhere) {
  const std::string flag = "--download_url=ftp://x/";
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"train"},
                                             {"launch", "ps=1", "worker=1"},
                                             {"task"},
                                             {"task", "--print_config"},
                                             {"train", "--download_only"},
                                             {"data", "locate"},
                                             {"data", "download"},
                                             {"data", "check"}}) {
    std::vector<std::string> all = command;
    all.push_back(flag);
    EXPECT_THAT(Refusal(all), HasSubstr("--download_url: \"ftp://x/\" is no base URL"));
  }
  // From nowhere else: the two that were named are, and nothing is left of the attempt.
  sandbox_.SetEnv("HTTP_PROXY", "");
  sandbox_.SetEnv("http_proxy", "");
  const std::string dir = sandbox_.dir().File("none");
  const Outcome outcome =
      sandbox_.Run({"data", "download", "--data_dir=" + dir,
                    "--download_url=http://127.0.0.1:1/a,http://127.0.0.1:1/b"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("http://127.0.0.1:1/a/train-images-idx3-ubyte.gz cannot be"));
  EXPECT_THAT(outcome.err, HasSubstr("http://127.0.0.1:1/b/train-images-idx3-ubyte.gz cannot be"));
  EXPECT_FALSE(std::filesystem::exists(dir));
}

TEST_F(DataTest, DownloadOnlyEndsWithOneLineWhereverItIsAsked) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"data", "download"},
        {"train", "--download_only"},
        {"launch", "ps=1", "worker=2", "--download_only"},
        // Before it is known which task this is.
        {"task", "--download_only"},
        {"task", "--download_only", "--job_name=worker"}}) {
    std::vector<std::string> all = command;
    all.push_back("--data_dir=" + Digits());
    const Outcome outcome = sandbox_.Run(all);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "the data is in " + Digits() + "\n");
  }
  WriteText(sandbox_.dir().File("c.yaml"), "data_dir: " + Digits() + "\n");
  EXPECT_EQ(
      sandbox_.Run({"task", "--download_only", "--config=" + sandbox_.dir().File("c.yaml")}).out,
      "the data is in " + Digits() + "\n");
  EXPECT_THAT(Refusal({"task", "--download_only", "--config=/no/such.yaml"}),
              HasSubstr("/no/such.yaml"));
}

// 143 would have a scheduler start it again and again.
TEST_F(DataTest, AFailedDownloadIsFinal) {
  sandbox_.SetEnv("HTTP_PROXY", "");
  sandbox_.SetEnv("http_proxy", "");
  passel::test::HttpServer server;
  const auto code = [&](const std::string& url, const std::vector<std::string>& command) {
    std::vector<std::string> all = command;
    all.push_back("--data_dir=" + sandbox_.dir().File("none"));
    all.push_back("--download_url=" + url);
    const Outcome outcome = sandbox_.Run(all);
    EXPECT_EQ(outcome.errors.size(), 1u) << outcome.err;
    return outcome.code;
  };
  const std::vector<std::string> download = {"data", "download"};
  const std::string first = "/mnist/train-images-idx3-ubyte.gz";
  EXPECT_EQ(code("http://no-such-host.invalid/", download), 1);
  EXPECT_EQ(code(server.url(), download), 2) << "it has no such file";
  server.Put(first, {.status = 503});
  EXPECT_EQ(code(server.url(), download), 1);
  EXPECT_EQ(code(server.url(), {"train", "--download_only"}), 1);
  EXPECT_EQ(code(server.url(), {"task", "--download_only"}), 1);
  server.Put(first, {.body = {1, 2, 3}});
  EXPECT_EQ(code(server.url(), download), 2) << "it has another file";
  EXPECT_FALSE(std::filesystem::exists(sandbox_.dir().File("none")));
}

// Damaged data that is there is an error, and never a download over it.
TEST_F(DataTest, DownloadOnlyNamesDataThatCannotBeUsed) {
  const std::string path = sandbox_.dir().File("bad.npz");
  WriteText(path, "PK\x03\x04 and then nothing");
  EXPECT_THAT(Refusal({"data", "download", "--data_dir=" + path}), HasSubstr(path));
  EXPECT_EQ(ReadText(path), "PK\x03\x04 and then nothing");
}

// The headers are right: only who reads it through sees it.
TEST_F(DataTest, DownloadOnlyReadsThroughWhatItSaysIsThere) {
  const std::string path = Make({"npz", test::WriteNpz, true}) + "/mnist.npz";
  std::string bytes = ReadText(path);
  EXPECT_EQ(sandbox_.Run({"data", "download", "--data_dir=" + path}).out,
            "the data is in " + path + "\n");
  bytes[bytes.size() / 3] ^= 0x10;
  WriteText(path, bytes);
  const std::string error = Refusal({"task", "--download_only", "--data_dir=" + path});
  EXPECT_THAT(error, HasSubstr(path));
  // The same sentence, at another time.
  EXPECT_THAT(Refusal({"data", "check", "--data_dir=" + path}),
              HasSubstr(error.substr(error.find(" E "))));
}

// Every size that the header of an IDX file can say, through the program, with little memory.
TEST_F(DataTest, HostileSizesGetOneSentence) {
  const std::string dir = sandbox_.dir().File("idx");
  std::filesystem::create_directory(dir);
  for (const char* name : kIdxFileNames) {
    std::filesystem::copy_file(Digits() + "/" + name, dir + "/" + name);
  }
  const std::string command =
      fmt::format("{}exec {} data check --data_dir={}", kMemoryLimit, PASSEL_PROGRAM, dir);
  const std::uint32_t sizes[] = {0, 1, 0x7fff'ffff, 0xffff'ffff};
  for (const std::uint32_t count : sizes) {
    for (const std::uint32_t rows : sizes) {
      for (const std::uint32_t cols : {1u, 28u, 0xffff'ffffu}) {
        std::string header = {0, 0, 8, 3};
        for (const std::uint32_t size : {count, rows, cols}) {
          for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(size >> shift);
        }
        WriteText(dir + "/t10k-images-idx3-ubyte", header + std::string(100, '\7'));
        Program program = sandbox_.StartCommand({"sh", "-c", command});
        const Outcome outcome = sandbox_.Finish(program);
        EXPECT_EQ(outcome.code, 2) << outcome.err;
        ASSERT_EQ(outcome.errors.size(), 1u) << outcome.err;
        EXPECT_THAT(outcome.errors[0], HasSubstr("t10k-images-idx3-ubyte"));
      }
    }
  }
}

}  // namespace
}  // namespace passel::testing

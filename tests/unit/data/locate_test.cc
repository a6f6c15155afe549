#include "data/locate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "data/dataset.h"
#include "data/download.h"
#include "tests/unit/data/http_server.h"
#include "tests/unit/data/test_files.h"
#include "tests/unit/data/zip_files.h"

namespace passel {
namespace {

namespace fs = std::filesystem;
using test::Bytes;
using test::HttpServer;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Sha256Test, MatchesThePublishedExample) {
  const std::string abc = "abc";  // FIPS 180-2, appendix B.1
  EXPECT_EQ(Sha256Hex(std::as_bytes(std::span(abc))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

// A server with a small data set, an empty cache, and an environment without other data.
class LocateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Bytes files[4] = {test::Gzip(test::Idx({2051, 4, 3, 3}, test::Ramp(36))),
                            test::Gzip(test::Idx({2049, 4}, {0, 1, 2, 1})),
                            test::Gzip(test::Idx({2051, 2, 3, 3}, test::Ramp(18))),
                            test::Gzip(test::Idx({2049, 2}, {2, 0}))};
    for (std::size_t i = 0; i < 4; ++i) {
      RemoteFile& remote = options_.download.files[i];
      remote.name = std::string(kIdxFileNames[i]) + ".gz";
      remote.bytes = files[i].size();
      remote.sha256 = Sha256Hex(test::View(files[i]));
      Serve(i, {.body = files[i]});
      bodies_[i] = files[i];
    }
    options_.shared_dir = dir_.File("no-shared-data");
    options_.download.base_url = server_.url();
    options_.download.stall_timeout = std::chrono::milliseconds(200);
    options_.download.file_timeout = std::chrono::seconds(20);
    options_.download.on_line = [this](const std::string& line) { lines_.push_back(line); };
    options_.generated_train = 50;
    options_.generated_test = 20;
  }
  void Serve(std::size_t file, HttpServer::Answer answer) {
    server_.Put("/mnist/" + options_.download.files[file].name, std::move(answer));
  }
  std::string Cache(const std::string& name) const { return dir_.File("cache/passel/" + name); }
  // Four usable files in `dir`.
  void MakeData(const std::string& dir) {
    fs::create_directories(dir);
    for (std::size_t i = 0; i < 4; ++i) {
      test::WriteAll(dir + "/" + options_.download.files[i].name, bodies_[i]);
    }
  }
  Status Download() { return DownloadFiles(dir_.File("to"), options_.download); }
  // Nothing under the name of any file, and no temporary file either.
  void ExpectNothingLeft() { EXPECT_FALSE(fs::exists(dir_.File("to"))); }

  test::TempDir dir_;
  test::ScopedEnv data_dir_{"PASSEL_DATA_DIR", nullptr};
  test::ScopedEnv cache_home_{"XDG_CACHE_HOME", dir_.File("cache").c_str()};
  test::ScopedEnv proxy_{"http_proxy", nullptr};
  test::ScopedEnv all_proxy_{"all_proxy", nullptr};
  test::ScopedEnv all_proxy_upper_{"ALL_PROXY", nullptr};
  HttpServer server_;
  LocateOptions options_;
  Bytes bodies_[4];
  std::vector<std::string> lines_;
};

// --- Download
// -------------------------------------------------------------------------------------

TEST_F(LocateTest, DownloadsFourFilesAndSaysSo) {
  const Status status = Download();
  ASSERT_TRUE(status.ok()) << status.ToString();
  const auto data = OwnedDataset::Load(dir_.File("to"));
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_EQ((*data)->train().size(), 4u);
  ASSERT_EQ(lines_.size(), 4u);
  EXPECT_EQ(lines_[1], "Successfully downloaded train-labels-idx1-ubyte.gz " +
                           std::to_string(bodies_[1].size()) + " bytes.");
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(test::ReadAll(dir_.File("to/" + options_.download.files[i].name)), bodies_[i]);
  }
}

TEST_F(LocateTest, DownloadsOnlyWhatIsMissing) {
  MakeData(dir_.File("to"));
  fs::remove(dir_.File("to/t10k-labels-idx1-ubyte.gz"));
  fs::rename(dir_.File("to/t10k-images-idx3-ubyte.gz"), dir_.File("to/t10k-images-idx3-ubyte"));
  ASSERT_TRUE(Download().ok());
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("t10k-labels-idx1-ubyte.gz")));
  EXPECT_EQ(server_.requests(), 1);
}

TEST_F(LocateTest, ContinuesAfterAFailure) {
  Serve(2, {.status = 503});
  EXPECT_EQ(Download().code(), Code::kUnavailable);
  EXPECT_EQ(lines_.size(), 2u);
  Serve(2, {.body = bodies_[2]});
  EXPECT_TRUE(Download().ok());
  EXPECT_EQ(lines_.size(), 4u);
}

// Each file comes from the first server that has it; sums count there, too.
TEST_F(LocateTest, MirrorsAreAskedInTurn) {
  Serve(1, {.status = 503});
  Serve(2, {.body = bodies_[0]});
  HttpServer second;
  for (const std::size_t i : {1, 2}) {
    second.Put("/mnist/" + options_.download.files[i].name, {.body = bodies_[i]});
  }
  options_.download.mirrors = {"http://127.0.0.1:1/", second.url()};
  ASSERT_TRUE(Download().ok()) << Download().ToString();
  EXPECT_EQ(second.requests(), 2);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(test::ReadAll(dir_.File("to/" + options_.download.files[i].name)), bodies_[i]);
  }
}

TEST_F(LocateTest, WhereNoMirrorHasAFileAllReasonsAreNamed) {
  Serve(0, {.body = bodies_[1]});
  options_.download.mirrors = {"http://127.0.0.1:1/other"};
  const Status status = Download();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(server_.url()), HasSubstr("127.0.0.1:1/other/")));
}

TEST(DownloadUrlTest, OnlyWhatFileNamesCanFollowIsOne) {
  for (const char* url : {"http://a", "https://a.b/c/", "http://localhost:8080/x", "http://[::1]/",
                          "http://[::1]:80/mnist", kMnistUrl}) {
    EXPECT_TRUE(CheckDownloadUrl(url).ok()) << CheckDownloadUrl(url).ToString();
  }
  for (const char* url :
       {"", "a", "ftp://a/", "file:///etc/", "HTTP:/a", "http://", "http:///x", "http://:80/",
        "http://a:0/", "http://a:65536/", "http://a:x/", "http://a b/", "http://a/\n",
        "http://a/?q", "http://a/#f", "http://[::1/"}) {
    const Status status = CheckDownloadUrl(url);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << url;
    EXPECT_THAT(status.message(), HasSubstr("use, for example, https://")) << url;
  }
  EXPECT_THAT(CheckDownloadUrl("http://me:secret@a/").message(), Not(HasSubstr("secret")));
  EXPECT_FALSE(CheckDownloadUrl("http://a/" + std::string(2000, 'x')).ok());
}

// What a program is used to is looked at first of all that nobody asked for.
TEST_F(LocateTest, DataWhereTheProgramHasItIsTakenAndItsAbsenceSaid) {
  options_.usual_dir = dir_.File("usual");
  options_.usual_for = "preset p";
  MakeData(options_.shared_dir);
  auto found = LocateData(options_);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->origin, DataOrigin::kShared);
  EXPECT_THAT(found->why, AllOf(HasSubstr("Not the data of preset p"), HasSubstr("usual")));
  fs::create_directories(options_.usual_dir);  // an empty one is as good as none
  EXPECT_EQ(LocateData(options_)->origin, DataOrigin::kShared);
  MakeData(options_.usual_dir);
  found = LocateData(options_);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->origin, DataOrigin::kUsual);
  EXPECT_EQ(found->dir, options_.usual_dir);
  // Damaged data is an error, whoever named it.
  fs::resize_file(options_.usual_dir + "/train-images-idx3-ubyte.gz", 5);
  EXPECT_THAT(LocateData(options_).status().message(), HasSubstr("preset p"));
  // What the user names comes first.
  options_.data_dir = options_.shared_dir;
  EXPECT_EQ(LocateData(options_)->origin, DataOrigin::kArgument);
  test::ScopedEnv environment{"PASSEL_DATA_DIR", options_.shared_dir.c_str()};
  options_.data_dir.clear();
  EXPECT_EQ(LocateData(options_)->origin, DataOrigin::kEnvironment);
}

// Another server is not the one that failed.
TEST_F(LocateTest, ServersThatTheUserNamesAreAskedInSpiteOfAFailure) {
  Serve(0, {.status = 503});
  ASSERT_EQ(LocateData(options_)->origin, DataOrigin::kGenerated);
  Serve(0, {.body = bodies_[0]});
  ASSERT_EQ(LocateData(options_)->origin, DataOrigin::kGenerated);
  options_.always_download = true;
  EXPECT_EQ(LocateData(options_)->origin, DataOrigin::kDownloaded);
}

TEST_F(LocateTest, FollowsARedirect) {
  server_.Put("/elsewhere", {.body = bodies_[0]});
  Serve(0, {.status = 302, .location = "/elsewhere"});
  EXPECT_TRUE(Download().ok());
}

TEST_F(LocateTest, StopsAtARedirectWithoutEnd) {
  Serve(0, {.status = 302, .location = "/mnist/train-images-idx3-ubyte.gz"});
  EXPECT_EQ(Download().code(), Code::kUnavailable);
  EXPECT_LE(server_.requests(), 6);
}

TEST_F(LocateTest, FollowsNoRedirectToAFile) {
  MakeData(dir_.File("local"));
  Serve(0, {.status = 302, .location = "file://" + dir_.File("local/train-images-idx3-ubyte.gz")});
  EXPECT_EQ(Download().code(), Code::kUnavailable);
  options_.download.base_url = "file://" + dir_.File("local");
  EXPECT_EQ(Download().code(), Code::kUnavailable);
  ExpectNothingLeft();
}

TEST_F(LocateTest, RefusesOtherBytesOfTheRightLength) {
  Bytes other = bodies_[0];
  other.back() ^= 1;
  Serve(0, {.body = other});
  const Status status = Download();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(Sha256Hex(test::View(other))),
                                      HasSubstr(options_.download.files[0].sha256)));
  ExpectNothingLeft();
}

TEST_F(LocateTest, RefusesABodyThatIsTooLongOrTooShort) {
  Bytes longer = bodies_[0];
  longer.push_back(0);
  Serve(0, {.body = longer});
  Status status = Download();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("is longer than"));
  Serve(0, {.body = Bytes(bodies_[0].begin(), bodies_[0].end() - 1)});
  status = Download();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("should have"));
  ExpectNothingLeft();
}

TEST_F(LocateTest, RefusesABodyThatIsCutOff) {
  Serve(0, {.body = bodies_[0], .send = bodies_[0].size() / 2});
  const Status status = Download();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(),
              HasSubstr("cut off after " + std::to_string(bodies_[0].size() / 2) + " of"));
  ExpectNothingLeft();
}

TEST_F(LocateTest, NamesTheUrlThatIsNotThere) {
  Serve(0, {.status = 404});
  const Status status = Download();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("HTTP status 404"),
                                      HasSubstr(server_.url() + "train-images-idx3-ubyte.gz")));
}

// The bound of 10 s is a liveness bound: without stall detection this takes file_timeout, 20 s.
TEST_F(LocateTest, GivesUpOnAServerThatFallsSilent) {
  for (const bool mute : {false, true}) {
    Serve(0, {.body = bodies_[0], .send = 10, .stall = true, .mute = mute});
    const std::int64_t start = MonotonicNs();
    const Status status = Download();
    EXPECT_LT(MonotonicNs() - start, 10'000'000'000);
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
    EXPECT_THAT(status.message(), HasSubstr(mute ? "sent nothing for 200 ms, after 0"
                                                 : "sent nothing for 200 ms, after 10"));
    ExpectNothingLeft();
  }
}

TEST_F(LocateTest, GivesUpOnAFileThatTakesTooLong) {
  options_.download.stall_timeout = std::chrono::seconds(20);
  options_.download.file_timeout = std::chrono::milliseconds(300);
  Serve(0, {.body = bodies_[0], .send = 10, .stall = true});
  const std::int64_t start = MonotonicNs();
  const Status status = Download();
  EXPECT_LT(MonotonicNs() - start, 10'000'000'000);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("10 of"));
}

TEST_F(LocateTest, GivesUpOnAServerThatDoesNotTakeTheConnection) {
  // A queue of one that is full: the kernel drops every further attempt, as a firewall would.
  FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.get(), raw, size), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  ASSERT_EQ(::getsockname(listener.get(), raw, &size), 0);
  std::vector<FileDescriptor> queue(8);
  for (FileDescriptor& fd : queue) {
    fd.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(fd.get(), raw, size);  // some are taken, the others wait
  }
  options_.download.base_url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/";
  options_.download.stall_timeout = std::chrono::seconds(20);
  options_.download.connect_timeout = std::chrono::milliseconds(300);
  const std::int64_t start = MonotonicNs();
  const Status status = Download();
  EXPECT_LT(MonotonicNs() - start, 10'000'000'000);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("300 ms to connect"));
}

TEST_F(LocateTest, ReportsARefusedConnection) {
  server_.Stop();
  const Status status = Download();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("cannot be fetched"));
}

TEST_F(LocateTest, KnowsTheSumsOfRealMnist) {
  if (!test::HaveMnist()) GTEST_SKIP() << "no MNIST in " << test::MnistDir();
  options_.download.files = MnistFiles();
  for (std::size_t i = 0; i < 4; ++i) {
    Serve(i, {.body = test::ReadAll(test::MnistDir() + "/" + MnistFiles()[i].name)});
  }
  const Status status = Download();
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(*DatasetBytes(dir_.File("to")), *DatasetBytes(test::MnistDir()));
}

TEST_F(LocateTest, SaysWhyAFolderCannotBeMade) {
  test::WriteAll(dir_.File("file"), {1});
  const Status status = DownloadFiles(dir_.File("file/below"), options_.download);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("cannot create the folder " + dir_.File("file")));
}

// --- Which directory
// ------------------------------------------------------------------------------

TEST_F(LocateTest, TakesTheArgumentBeforeEverythingElse) {
  MakeData(dir_.File("argument"));
  MakeData(dir_.File("environment"));
  const test::ScopedEnv env("PASSEL_DATA_DIR", dir_.File("environment").c_str());
  options_.data_dir = dir_.File("argument");
  const auto location = LocateData(options_);
  ASSERT_TRUE(location.ok()) << location.status().ToString();
  EXPECT_EQ(location->dir, dir_.File("argument"));
  EXPECT_EQ(location->origin, DataOrigin::kArgument);
  EXPECT_THAT(location->why, HasSubstr("--data_dir"));
}

TEST_F(LocateTest, TakesTheEnvironmentThenSharedThenCache) {
  MakeData(Cache("mnist"));
  EXPECT_EQ(LocateData(options_)->origin, DataOrigin::kCache);
  EXPECT_EQ(LocateData(options_)->dir, Cache("mnist"));
  MakeData(options_.shared_dir);
  EXPECT_EQ(LocateData(options_)->origin, DataOrigin::kShared);
  MakeData(dir_.File("environment"));
  const test::ScopedEnv env("PASSEL_DATA_DIR", dir_.File("environment").c_str());
  EXPECT_EQ(LocateData(options_)->origin, DataOrigin::kEnvironment);
  EXPECT_EQ(LocateData(options_)->dir, dir_.File("environment"));
  EXPECT_EQ(server_.requests(), 0);
}

TEST_F(LocateTest, DoesNotFallBackFromWhatTheUserNamed) {
  MakeData(options_.shared_dir);
  {
    LocateOptions named = options_;
    named.data_dir = dir_.File("absent");
    const auto location = LocateData(named);
    EXPECT_EQ(location.status().code(), Code::kNotFound);
    EXPECT_THAT(location.status().message(), HasSubstr("--data_dir"));
  }
  const test::ScopedEnv env("PASSEL_DATA_DIR", dir_.File("absent").c_str());
  const auto location = LocateData(options_);
  EXPECT_EQ(location.status().code(), Code::kNotFound);
  EXPECT_THAT(location.status().message(), HasSubstr("PASSEL_DATA_DIR"));
}

TEST_F(LocateTest, TakesAnNpzFileOrCsvFilesFromWhoeverNamesThem) {
  const Bytes npz = test::Zip({{"x_train.npy", test::Npy("|u1", "(1, 28, 28)", test::Ramp(784))},
                               {"y_train.npy", test::Npy("|u1", "(1,)", {3})},
                               {"x_test.npy", test::Npy("|u1", "(1, 28, 28)", test::Ramp(784))},
                               {"y_test.npy", test::Npy("|u1", "(1,)", {3})}});
  test::WriteAll(dir_.File("mnist.npz"), npz);
  options_.data_dir = dir_.File("mnist.npz");
  auto location = LocateData(options_);
  ASSERT_TRUE(location.ok()) << location.status().ToString();
  EXPECT_EQ(location->dir, dir_.File("mnist.npz"));
  EXPECT_EQ(location->why,
            "Using the data in " + dir_.File("mnist.npz") + " (npz), as --data_dir says.");

  options_.data_dir.clear();
  fs::create_directories(dir_.File("csv"));
  std::string line = "3";
  for (int i = 0; i < 784; ++i) line += ",0";
  for (const char* name : {"mnist_train.csv", "mnist_test.csv"}) {
    test::WriteAll(dir_.File("csv/") + name, Bytes(line.begin(), line.end()));
  }
  const test::ScopedEnv env("PASSEL_DATA_DIR", dir_.File("csv").c_str());
  location = LocateData(options_);
  ASSERT_TRUE(location.ok()) << location.status().ToString();
  EXPECT_EQ(location->origin, DataOrigin::kEnvironment);
  EXPECT_EQ(location->why,
            "Using the data in " + dir_.File("csv") + " (csv), as PASSEL_DATA_DIR says.");

  test::WriteAll(dir_.File("csv/mnist_test.csv"), {'3', ',', '4'});
  location = LocateData(options_);
  EXPECT_THAT(location.status().message(),
              AllOf(HasSubstr("PASSEL_DATA_DIR"),
                    HasSubstr("mnist_test.csv has 1: use two files of one set")));
}

// --- Download only
// --------------------------------------------------------------------------------

TEST_F(LocateTest, EnsureDataTakesWhatIsThere) {
  MakeData(dir_.File("argument"));
  options_.data_dir = dir_.File("argument");
  EXPECT_EQ(EnsureData(options_)->origin, DataOrigin::kArgument);
  options_.data_dir.clear();
  MakeData(Cache("mnist"));
  EXPECT_EQ(EnsureData(options_)->origin, DataOrigin::kCache);
  EXPECT_EQ(server_.requests(), 0);
}

TEST_F(LocateTest, EnsureDataDownloadsToWhereItWasTold) {
  options_.data_dir = dir_.File("new/folder");
  auto location = EnsureData(options_);
  ASSERT_TRUE(location.ok()) << location.status().ToString();
  EXPECT_EQ(location->origin, DataOrigin::kDownloaded);
  EXPECT_EQ(location->dir, dir_.File("new/folder"));
  EXPECT_EQ(lines_.size(), 4u);
  EXPECT_EQ(server_.requests(), 4);
  EXPECT_FALSE(fs::exists(Cache("")));
  fs::remove(dir_.File("new/folder/t10k-labels-idx1-ubyte.gz"));
  EXPECT_TRUE(EnsureData(options_).ok());
  EXPECT_EQ(server_.requests(), 5);
  EXPECT_EQ(EnsureData(options_)->origin, DataOrigin::kArgument);
  options_.data_dir.clear();
  EXPECT_EQ(EnsureData(options_)->dir, Cache("mnist"));
}

TEST_F(LocateTest, EnsureDataMakesNoFolderOutOfAMistake) {
  options_.data_dir = dir_.File("mnist.npz");
  EXPECT_EQ(EnsureData(options_).status().code(), Code::kNotFound);
  EXPECT_FALSE(fs::exists(dir_.File("mnist.npz")));
  test::WriteAll(dir_.File("mnist.npz"), {'x'});
  EXPECT_EQ(EnsureData(options_).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(server_.requests(), 0);
}

TEST_F(LocateTest, EnsureDataDrawsNothingWhenOffline) {
  server_.Stop();
  fs::create_directory(dir_.File("empty"));
  for (const std::string& dir : {dir_.File("new"), dir_.File("new/in/new/"), dir_.File("empty"),
                                 dir_.File("empty/new"), std::string()}) {
    options_.data_dir = dir;
    const auto location = EnsureData(options_);
    EXPECT_EQ(location.status().code(), Code::kUnavailable) << location.status().ToString();
    EXPECT_THAT(location.status().message(), HasSubstr("MNIST cannot be downloaded"));
    // Nothing is left that was not there before, and what was there still is.
    EXPECT_FALSE(fs::exists(dir_.File("new"))) << dir;
    EXPECT_TRUE(fs::is_empty(dir_.File("empty"))) << dir;
    EXPECT_FALSE(fs::exists(dir_.File("cache"))) << dir;
  }
  options_.allow_download = false;
  options_.data_dir = dir_.File("absent");
  EXPECT_EQ(EnsureData(options_).status().code(), Code::kNotFound);
}

// --- Damage, and the cache
// ------------------------------------------------------------------------

TEST_F(LocateTest, DoesNotSkipOverDamagedData) {
  MakeData(Cache("mnist"));
  test::WriteAll(Cache("mnist/train-images-idx3-ubyte.gz"), {0x1f, 0x8b, 8});
  const auto location = LocateData(options_);
  EXPECT_EQ(location.status().code(), Code::kDataLoss);
  EXPECT_THAT(location.status().message(),
              AllOf(HasSubstr("cache is damaged"), HasSubstr("train-images-idx3-ubyte.gz")));
}

TEST_F(LocateTest, DownloadsIntoTheCacheOnce) {
  const auto first = LocateData(options_);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(first->origin, DataOrigin::kDownloaded);
  EXPECT_EQ(first->dir, Cache("mnist"));
  const auto second = LocateData(options_);
  EXPECT_EQ(second->origin, DataOrigin::kCache);
  EXPECT_EQ(server_.requests(), 4);
  struct stat info;
  ASSERT_EQ(::stat(Cache("mnist").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(LocateTest, DrawsDigitsWhenOffline) {
  server_.Stop();
  const auto location = LocateData(options_);
  ASSERT_TRUE(location.ok()) << location.status().ToString();
  EXPECT_EQ(location->origin, DataOrigin::kGenerated);
  EXPECT_EQ(location->dir, Cache("generated-digits-v1"));
  EXPECT_THAT(location->why, AllOf(HasSubstr("not MNIST"), HasSubstr("cannot be fetched")));
  const auto data = OwnedDataset::Load(location->dir);
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_EQ((*data)->train().size(), 50u);
}

TEST_F(LocateTest, TriesTheDownloadAgainAfterAnHour) {
  Serve(0, {.status = 503});
  ASSERT_EQ(LocateData(options_)->origin, DataOrigin::kGenerated);
  EXPECT_EQ(server_.requests(), 1);
  const auto second = LocateData(options_);
  EXPECT_EQ(second->origin, DataOrigin::kGenerated);
  EXPECT_THAT(second->why, HasSubstr("it failed 0 minutes ago"));
  EXPECT_EQ(server_.requests(), 1);
  // Who cannot do without MNIST tries again at once.
  options_.allow_generated = false;
  EXPECT_EQ(LocateData(options_).status().code(), Code::kUnavailable);
  EXPECT_EQ(server_.requests(), 2);
  options_.allow_generated = true;

  Serve(0, {.body = bodies_[0]});
  fs::last_write_time(Cache("mnist-download-failed"),
                      fs::file_time_type::clock::now() - std::chrono::minutes(61));
  EXPECT_EQ(LocateData(options_)->origin, DataOrigin::kDownloaded);
  EXPECT_FALSE(fs::exists(Cache("mnist-download-failed")));
}

TEST_F(LocateTest, DownloadsNothingWhenNotAllowed) {
  options_.allow_download = false;
  EXPECT_EQ(LocateData(options_)->origin, DataOrigin::kGenerated);
  options_.allow_generated = false;
  EXPECT_EQ(LocateData(options_).status().code(), Code::kUnavailable);
  EXPECT_EQ(server_.requests(), 0);
}

TEST_F(LocateTest, RepairsDamagedDigits) {
  options_.allow_download = false;
  ASSERT_TRUE(LocateData(options_).ok());
  const std::string file = Cache("generated-digits-v1/train-images-idx3-ubyte");
  const Bytes intact = test::ReadAll(file);
  fs::resize_file(file, 100);
  const auto location = LocateData(options_);
  ASSERT_TRUE(location.ok()) << location.status().ToString();
  EXPECT_EQ(test::ReadAll(file), intact);
}

TEST_F(LocateTest, RemovesFoldersThatKilledProcessesLeft) {
  fs::create_directories(Cache("generated-digits-v1.tmp.old"));
  fs::create_directories(Cache("generated-digits-v1.tmp.new"));
  fs::last_write_time(Cache("generated-digits-v1.tmp.old"),
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  options_.allow_download = false;
  ASSERT_TRUE(LocateData(options_).ok());
  EXPECT_FALSE(fs::exists(Cache("generated-digits-v1.tmp.old")));
  EXPECT_TRUE(fs::exists(Cache("generated-digits-v1.tmp.new")));
}

TEST_F(LocateTest, ConcurrentFirstUsesAgree) {
  options_.allow_download = false;
  for (int round = 0; round < 5; ++round) {
    fs::remove_all(Cache(""));
    std::vector<Status> results(6);
    {
      std::vector<std::jthread> threads;
      for (Status& result : results) {
        threads.emplace_back([this, &result] {
          const auto location = LocateData(options_);
          result = location.ok() ? OwnedDataset::Load(location->dir).status() : location.status();
        });
      }
    }
    for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.ToString();
    std::vector<std::string> left;
    for (const auto& entry : fs::directory_iterator(Cache(""))) {
      left.push_back(entry.path().filename().string());
    }
    EXPECT_THAT(left, ElementsAre("generated-digits-v1"));
  }
}

TEST_F(LocateTest, NeedsAPlaceForTheCache) {
  const test::ScopedEnv home("HOME", "relative");
  const test::ScopedEnv xdg("XDG_CACHE_HOME", "relative");
  const auto location = LocateData(options_);
  EXPECT_EQ(location.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(location.status().message(), AllOf(HasSubstr("XDG_CACHE_HOME"), HasSubstr("HOME")));
  const test::ScopedEnv good_home("HOME", "/home/somebody");
  EXPECT_EQ(*DataCacheDir(), "/home/somebody/.cache/passel");
}

TEST_F(LocateTest, APlaceThatTakesNothingIsNamedWithTheWaysOut) {
  // Not even root makes a folder there.
  const test::ScopedEnv home("HOME", "/proc");
  const test::ScopedEnv xdg("XDG_CACHE_HOME", "");
  for (const bool generated : {true, false}) {
    options_.allow_generated = generated;
    const auto location = LocateData(options_);
    ASSERT_FALSE(location.ok());
    EXPECT_THAT(location.status().message(), HasSubstr("/proc/.cache"));
    if (!generated) continue;
    EXPECT_EQ(location.status().code(), Code::kFailedPrecondition);
    EXPECT_THAT(location.status().message(),
                AllOf(HasSubstr("no data was found, and /proc/.cache/passel cannot keep any ("),
                      HasSubstr("): name a directory with data (--data_dir), or set "
                                "XDG_CACHE_HOME to one that can be written to")));
  }
}

}  // namespace
}  // namespace passel

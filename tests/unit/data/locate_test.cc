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
#include "data/data_source.h"
#include "data/download.h"
#include "data/idx.h"
#include "tests/unit/data/format_files.h"
#include "tests/unit/data/http_server.h"
#include "tests/unit/data/test_files.h"

namespace passel {
namespace {

namespace fs = std::filesystem;
using test::Bytes;
using test::Fails;
using test::HttpServer;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr std::int64_t kTenSecondsNs = 10'000'000'000;

TEST(Sha256Test, MatchesThePublishedExample) {
  const std::string abc = "abc";  // FIPS 180-2, appendix B.1
  EXPECT_EQ(Sha256Hex(std::as_bytes(std::span(abc))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(DownloadUrlTest, OnlyWhatFileNamesCanFollowIsOne) {
  for (const char* url : {"http://a", "https://a.b/c/", "http://localhost:8080/x", "http://[::1]/",
                          "http://[::1]:80/mnist", kMnistUrl}) {
    EXPECT_TRUE(CheckDownloadUrl(url).ok()) << CheckDownloadUrl(url).ToString();
  }
  const std::string long_url = "http://a/" + std::string(2000, 'x');
  for (const std::string url :
       {"", "a", "ftp://a/", "file:///etc/", "HTTP:/a", "http://", "http:///x", "http://:80/",
        "http://a:0/", "http://a:65536/", "http://a:x/", "http://a b/", "http://a/\n",
        "http://a/?q", "http://a/#f", "http://[::1/", "http://me:secret@a/", long_url.c_str()}) {
    const Status status = CheckDownloadUrl(url);
    EXPECT_THAT(status, Fails(Code::kInvalidArgument, "use, for example, https://")) << url;
    EXPECT_THAT(status.message(), Not(HasSubstr("secret")));
  }
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
  // The bound is a liveness bound: without any other this takes file_timeout, 20 s.
  Status Download() {
    const std::int64_t start = MonotonicNs();
    const Status status = DownloadFiles(dir_.File("to"), options_.download);
    EXPECT_LT(MonotonicNs() - start, kTenSecondsNs);
    return status;
  }
  void ExpectDownloaded() {
    const Status status = Download();
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(test::ReadAll(dir_.File("to/" + options_.download.files[i].name)), bodies_[i]);
    }
  }
  void ExpectLocated(DataOrigin origin, const std::string& dir, const std::string& why) {
    const auto found = LocateData(options_);
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    EXPECT_EQ(found->origin, origin) << found->why;
    EXPECT_EQ(found->dir, dir);
    EXPECT_THAT(found->why, HasSubstr(why));
  }
  void ExpectGenerated(const std::string& why) {
    ExpectLocated(DataOrigin::kGenerated, Cache("generated-digits-v1"), why);
  }

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

// --- Download ------------------------------------------------------------------------------------

TEST_F(LocateTest, DownloadsFourFilesAndSaysSo) {
  ExpectDownloaded();
  EXPECT_EQ((*OwnedDataset::Load(dir_.File("to")))->train().size(), 4u);
  ASSERT_EQ(lines_.size(), 4u);
  EXPECT_EQ(lines_[1], "Successfully downloaded train-labels-idx1-ubyte.gz " +
                           std::to_string(bodies_[1].size()) + " bytes.");
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
  EXPECT_THAT(Download(), Fails(Code::kUnavailable));
  EXPECT_EQ(lines_.size(), 2u);
  Serve(2, {.body = bodies_[2]});
  ExpectDownloaded();
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
  ExpectDownloaded();
  EXPECT_EQ(second.requests(), 2);
}

TEST_F(LocateTest, WhereNoMirrorHasAFileAllReasonsAreNamed) {
  Serve(0, {.body = bodies_[1]});
  options_.download.mirrors = {"http://127.0.0.1:1/other"};
  EXPECT_THAT(Download(), Fails(Code::kDataLoss, server_.url(), "127.0.0.1:1/other/"));
}

TEST_F(LocateTest, FollowsARedirect) {
  server_.Put("/elsewhere", {.body = bodies_[0]});
  Serve(0, {.status = 302, .location = "/elsewhere"});
  ExpectDownloaded();
}

// Nothing is left under the name of any file, and no temporary file either.
TEST_F(LocateTest, NoBadAnswerIsTakenOrLeavesAnything) {
  MakeData(dir_.File("local"));
  const Bytes& body = bodies_[0];
  const std::size_t half = body.size() / 2;
  Bytes other = body, longer = body;
  other.back() ^= 1;
  longer.push_back(0);
  const std::string url = server_.url() + "train-images-idx3-ubyte.gz";
  const struct {
    HttpServer::Answer answer;
    Fails fails;
  } cases[] = {
      {{.body = other},
       Fails(Code::kDataLoss, Sha256Hex(test::View(other)), options_.download.files[0].sha256)},
      {{.body = longer}, Fails(Code::kDataLoss, "is longer than")},
      {{.body = test::First(body, body.size() - 1)}, Fails(Code::kDataLoss, "should have")},
      {{.body = body, .send = half},
       Fails(Code::kDataLoss, "cut off after " + std::to_string(half) + " of")},
      {{.status = 404}, Fails(Code::kNotFound, "HTTP status 404", url)},
      {{.body = body, .send = 10, .stall = true},
       Fails(Code::kDeadlineExceeded, "sent nothing for 200 ms, after 10")},
      {{.mute = true}, Fails(Code::kDeadlineExceeded, "sent nothing for 200 ms, after 0")},
      {{.status = 302, .location = "file://" + dir_.File("local/train-images-idx3-ubyte.gz")},
       Fails(Code::kUnavailable)},
      {{.status = 302, .location = "/mnist/train-images-idx3-ubyte.gz"},  // and so on
       Fails(Code::kUnavailable)},
  };
  for (const auto& [answer, fails] : cases) {
    Serve(0, answer);
    // Only where it is to end the wait: a busy machine takes a while to answer.
    const bool silent = answer.stall || answer.mute;
    options_.download.stall_timeout = std::chrono::milliseconds(silent ? 200 : 10'000);
    const int before = server_.requests();
    EXPECT_THAT(Download(), fails);
    EXPECT_LE(server_.requests(), before + 6);
    EXPECT_FALSE(fs::exists(dir_.File("to")));
  }
  for (const std::string& place :
       {"file://" + dir_.File("local"), std::string("http://127.0.0.1:1/")}) {
    options_.download.base_url = place;
    EXPECT_THAT(Download(), Fails(Code::kUnavailable, "cannot be fetched"));
    EXPECT_FALSE(fs::exists(dir_.File("to")));
  }
}

TEST_F(LocateTest, GivesUpOnAFileThatTakesTooLong) {
  options_.download.file_timeout = std::chrono::milliseconds(300);
  Serve(0, {.body = bodies_[0], .send = 10, .stall = true});
  EXPECT_THAT(Download(), Fails(Code::kDeadlineExceeded, "10 of"));
}

TEST_F(LocateTest, GivesUpOnAServerThatDoesNotTakeTheConnection) {
  // A queue of one that is full: the kernel drops every further attempt, as a firewall would.
  sockaddr_in address;
  const FileDescriptor listener = test::Listen(0, &address);
  std::vector<FileDescriptor> queue(8);
  for (FileDescriptor& fd : queue) {
    fd.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(fd.get(), reinterpret_cast<sockaddr*>(&address),
                    sizeof(address));  // some are taken, the others wait
  }
  options_.download.base_url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/";
  options_.download.connect_timeout = std::chrono::milliseconds(300);
  EXPECT_THAT(Download(), Fails(Code::kDeadlineExceeded, "300 ms to connect"));
}

TEST_F(LocateTest, KnowsTheSumsOfRealMnist) {
  if (!test::HaveMnist()) GTEST_SKIP() << "no MNIST in " << test::MnistDir();
  options_.download.files = MnistFiles();
  for (std::size_t i = 0; i < 4; ++i) {
    bodies_[i] = test::ReadAll(test::MnistDir() + "/" + MnistFiles()[i].name);
    Serve(i, {.body = bodies_[i]});
  }
  ExpectDownloaded();
}

TEST_F(LocateTest, SaysWhyAFolderCannotBeMade) {
  test::WriteAll(dir_.File("file"), {1});
  EXPECT_THAT(DownloadFiles(dir_.File("file/below"), options_.download).message(),
              HasSubstr("cannot create the folder " + dir_.File("file")));
}

// --- Which directory -----------------------------------------------------------------------------

TEST_F(LocateTest, TakesTheFirstPlaceThatHasData) {
  // From the last place to the first.
  ExpectLocated(DataOrigin::kDownloaded, Cache("mnist"), "downloaded from " + server_.url());
  struct stat info;
  ASSERT_EQ(::stat(Cache("mnist").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ExpectLocated(DataOrigin::kCache, Cache("mnist"), "MNIST from the cache");
  MakeData(options_.shared_dir);
  ExpectLocated(DataOrigin::kShared, options_.shared_dir, "nothing else was asked for");
  // Where the program has it. An empty folder is as good as none, and either is said.
  options_.usual_dir = dir_.File("usual");
  options_.usual_for = "preset p";
  ExpectLocated(DataOrigin::kShared, options_.shared_dir, "(Not the data of preset p: ");
  fs::create_directories(options_.usual_dir);
  ExpectLocated(DataOrigin::kShared, options_.shared_dir, options_.usual_dir);
  MakeData(options_.usual_dir);
  ExpectLocated(DataOrigin::kUsual, options_.usual_dir, "where preset p has it");
  MakeData(dir_.File("environment"));
  const test::ScopedEnv env("PASSEL_DATA_DIR", dir_.File("environment").c_str());
  ExpectLocated(DataOrigin::kEnvironment, dir_.File("environment"), "as PASSEL_DATA_DIR says");
  options_.data_dir = dir_.File("argument");
  MakeData(options_.data_dir);
  ExpectLocated(DataOrigin::kArgument, options_.data_dir, "as --data_dir says");
  EXPECT_EQ(server_.requests(), 4);
}

// Damaged data is an error, whoever named it; what the user names must be there.
TEST_F(LocateTest, DoesNotFallBackFromWhatIsNamedOrDamaged) {
  const auto damage = [](const std::string& dir) {
    fs::resize_file(dir + "/train-images-idx3-ubyte.gz", 5);
  };
  MakeData(Cache("mnist"));
  damage(Cache("mnist"));
  EXPECT_THAT(LocateData(options_), Fails(Code::kDataLoss, "cache is damaged", "train-images-"));
  MakeData(options_.shared_dir);
  options_.usual_dir = dir_.File("usual");
  options_.usual_for = "preset p";
  MakeData(options_.usual_dir);
  damage(options_.usual_dir);
  EXPECT_THAT(LocateData(options_), Fails(Code::kDataLoss, "preset p"));
  const test::ScopedEnv env("PASSEL_DATA_DIR", dir_.File("absent").c_str());
  EXPECT_THAT(LocateData(options_), Fails(Code::kNotFound, "PASSEL_DATA_DIR"));
  options_.data_dir = dir_.File("absent");
  EXPECT_THAT(LocateData(options_), Fails(Code::kNotFound, "--data_dir"));
}

TEST_F(LocateTest, SaysWhichFormatThatIsNotTheUsualIsUsed) {
  const std::string says[] = {"", " (npz)", " (csv)"};
  for (std::size_t i = 0; i < std::size(says); ++i) {
    options_.data_dir = dir_.File(test::kWriters[i].format);
    fs::create_directories(options_.data_dir);
    test::kWriters[i].write(options_.data_dir, test::Small());
    ExpectLocated(DataOrigin::kArgument, options_.data_dir,
                  "Using the data in " + options_.data_dir + says[i] + ", as --data_dir says.");
  }
}

// --- Download only -------------------------------------------------------------------------------

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
  const auto location = EnsureData(options_);
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
  for (const std::string name : {"mnist.npz", "mnist_train.csv"}) {
    options_.data_dir = dir_.File(name);
    EXPECT_THAT(EnsureData(options_), Fails(Code::kNotFound, name));
    EXPECT_FALSE(fs::exists(dir_.File(name)));
    test::WriteAll(dir_.File(name), {'x'});
    EXPECT_THAT(EnsureData(options_), Fails(Code::kInvalidArgument, name));
  }
  EXPECT_EQ(server_.requests(), 0);
}

TEST_F(LocateTest, EnsureDataDrawsNothingWhenOffline) {
  server_.Stop();
  fs::create_directory(dir_.File("empty"));
  for (const std::string& dir : {dir_.File("new"), dir_.File("new/in/new/"), dir_.File("empty"),
                                 dir_.File("empty/new"), std::string()}) {
    options_.data_dir = dir;
    EXPECT_THAT(EnsureData(options_), Fails(Code::kUnavailable, "MNIST cannot be downloaded"));
    // Nothing is left that was not there before, and what was there still is.
    EXPECT_FALSE(fs::exists(dir_.File("new"))) << dir;
    EXPECT_TRUE(fs::is_empty(dir_.File("empty"))) << dir;
    EXPECT_FALSE(fs::exists(dir_.File("cache"))) << dir;
  }
}

// --- The cache -----------------------------------------------------------------------------------

TEST_F(LocateTest, DrawsDigitsWhenOffline) {
  server_.Stop();
  ExpectGenerated("cannot be fetched");
  ExpectGenerated("not MNIST");
  const auto data = OwnedDataset::Load(Cache("generated-digits-v1"));
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_EQ((*data)->train().size(), 50u);
}

TEST_F(LocateTest, TriesTheDownloadAgainAfterAnHour) {
  Serve(0, {.status = 503});
  ExpectGenerated("HTTP status 503");
  EXPECT_EQ(server_.requests(), 1);
  ExpectGenerated("it failed 0 minutes ago");
  EXPECT_EQ(server_.requests(), 1);
  // Who cannot do without MNIST tries again at once.
  options_.allow_generated = false;
  EXPECT_THAT(LocateData(options_), Fails(Code::kUnavailable));
  EXPECT_EQ(server_.requests(), 2);
  options_.allow_generated = true;

  Serve(0, {.body = bodies_[0]});
  ExpectGenerated("it failed 0 minutes ago");
  fs::last_write_time(Cache("mnist-download-failed"),
                      fs::file_time_type::clock::now() - std::chrono::minutes(61));
  EXPECT_EQ(LocateData(options_)->origin, DataOrigin::kDownloaded);
  EXPECT_FALSE(fs::exists(Cache("mnist-download-failed")));
}

// Another server is not the one that failed.
TEST_F(LocateTest, ServersThatTheUserNamesAreAskedInSpiteOfAFailure) {
  Serve(0, {.status = 503});
  ASSERT_EQ(LocateData(options_)->origin, DataOrigin::kGenerated);
  Serve(0, {.body = bodies_[0]});
  options_.always_download = true;
  EXPECT_EQ(LocateData(options_)->origin, DataOrigin::kDownloaded);
}

TEST_F(LocateTest, RepairsDamagedDigitsAndRemovesWhatKilledProcessesLeft) {
  fs::create_directories(Cache("generated-digits-v1.tmp.old"));
  fs::create_directories(Cache("generated-digits-v1.tmp.new"));
  fs::last_write_time(Cache("generated-digits-v1.tmp.old"),
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  server_.Stop();
  ASSERT_TRUE(LocateData(options_).ok());
  EXPECT_FALSE(fs::exists(Cache("generated-digits-v1.tmp.old")));
  EXPECT_TRUE(fs::exists(Cache("generated-digits-v1.tmp.new")));
  const std::string file = Cache("generated-digits-v1/train-images-idx3-ubyte");
  const Bytes intact = test::ReadAll(file);
  fs::resize_file(file, 100);
  ExpectGenerated("");
  EXPECT_EQ(test::ReadAll(file), intact);
}

TEST_F(LocateTest, ConcurrentFirstUsesAgree) {
  for (int round = 0; round < 5; ++round) {
    fs::remove_all(Cache(""));
    fs::create_directories(Cache(""));
    test::WriteAll(Cache("mnist-download-failed"), {});  // lately: none is tried
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
    EXPECT_THAT(left, UnorderedElementsAre("generated-digits-v1", "mnist-download-failed"));
  }
}

TEST_F(LocateTest, NeedsAPlaceForTheCache) {
  const test::ScopedEnv home("HOME", "relative");
  const test::ScopedEnv xdg("XDG_CACHE_HOME", "relative");
  EXPECT_THAT(LocateData(options_), Fails(Code::kFailedPrecondition, "XDG_CACHE_HOME", "HOME"));
  const test::ScopedEnv good_home("HOME", "/home/somebody");
  EXPECT_EQ(*DataCacheDir(), "/home/somebody/.cache/passel");
}

TEST_F(LocateTest, APlaceThatTakesNothingIsNamedWithTheWaysOut) {
  // Not even root makes a folder there.
  const test::ScopedEnv home("HOME", "/proc");
  const test::ScopedEnv xdg("XDG_CACHE_HOME", "");
  EXPECT_THAT(LocateData(options_),
              Fails(Code::kFailedPrecondition,
                    "no data was found, and /proc/.cache/passel cannot keep any (",
                    "): name a directory with data (--data_dir), or set XDG_CACHE_HOME to one that "
                    "can be written to"));
  options_.allow_generated = false;
  EXPECT_THAT(LocateData(options_).status().message(), HasSubstr("/proc/.cache"));
}

}  // namespace
}  // namespace passel

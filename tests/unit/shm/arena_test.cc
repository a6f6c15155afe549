// Arenas: what is created, and everything that Adopt() must refuse without a crash.

#include "shm/arena.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "shm/layout.h"
#include "store/open_store.h"
#include "support/sanitized.h"

namespace passel::shm {
namespace {

using ::testing::HasSubstr;

const MemoryBudget kPlenty{std::uint64_t{64} << 20, "the test"};

StorePlan Plan(std::vector<std::vector<std::int64_t>> shapes, int workers, Mode mode,
               const char* optimizer) {
  StorePlan plan;
  plan.mode = mode;
  plan.num_workers = workers;
  plan.optimizer = *ParseOptimizer(optimizer);
  std::vector<VariableInfo> variables;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    VariableInfo v;
    v.name = v.logical = fmt::format("v{}", i);
    v.shape = shapes[i];
    variables.push_back(v);
  }
  plan.variables = *VariableTable::Build(variables, 1);
  return plan;
}

StorePlan SmallPlan() { return Plan({{30, 7}, {7}}, 2, Mode::kBarrier, "adam"); }

Arena MakeArena(const StorePlan& plan, bool publish = true) {
  ArenaOptions options;
  options.job_id = "arena-test";
  Result<Arena> arena = Arena::Create(plan, 0, options, kPlenty);
  PASSEL_CHECK(arena.ok(), arena.status().message().c_str());
  if (publish) arena->Publish();
  return std::move(*arena);
}

std::vector<char> BytesOf(const Arena& arena) {
  std::vector<char> bytes(arena.bytes());
  PASSEL_CHECK(
      ::pread(arena.fd(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
      "a memory file reads whole");
  return bytes;
}

constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

FileDescriptor FileWith(const std::vector<char>& bytes, int seals = kAllSeals) {
  FileDescriptor fd(::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  PASSEL_CHECK(bytes.empty() || ::write(fd.get(), bytes.data(), bytes.size()) ==
                                    static_cast<ssize_t>(bytes.size()),
               "memory for the file");
  // The last page is reserved whole, as in a file that fallocate() made.
  PASSEL_CHECK(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0, "sealed");
  return fd;
}

FileDescriptor Duplicate(int fd) { return FileDescriptor(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

template <typename T>
void Put(std::vector<char>& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

TEST(Arena, AdoptedMappingSharesEverythingAtAnotherAddress) {
  Arena created = MakeArena(SmallPlan());
  Result<Arena> adopted = Arena::Adopt(Duplicate(created.fd()));
  ASSERT_TRUE(adopted.ok()) << adopted.status().ToString();
  EXPECT_NE(adopted->memory().values, created.memory().values);
  created.memory().values[3] = 42;
  EXPECT_EQ(adopted->memory().values[3], 42);
  EXPECT_EQ(adopted->plan().Hash(), created.plan().Hash());
  EXPECT_EQ(adopted->job_id(), "arena-test");
  EXPECT_EQ(adopted->nonce(), created.nonce());
  EXPECT_NE(MakeArena(SmallPlan()).nonce(), created.nonce());
  // A mapping outlives the others.
  const float* values = adopted->memory().values;
  { const Arena gone = std::move(created); }
  EXPECT_EQ(values[3], 42);
}

TEST(Arena, IsSealedReservedPrivateAndWithoutAName) {
  const Arena arena = MakeArena(SmallPlan());
  EXPECT_EQ(::fcntl(arena.fd(), F_GET_SEALS) & kAllSeals, kAllSeals);
  EXPECT_NE(::ftruncate(arena.fd(), 0), 0);
  EXPECT_NE(::ftruncate(arena.fd(), static_cast<off_t>(2 * arena.bytes())), 0);
  EXPECT_NE(::fcntl(arena.fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  struct stat info;
  ASSERT_EQ(::fstat(arena.fd(), &info), 0);
  EXPECT_EQ(static_cast<std::size_t>(info.st_size), arena.bytes());
  EXPECT_GE(static_cast<std::size_t>(info.st_blocks) * 512, arena.bytes());
  EXPECT_EQ(info.st_nlink, 0u);
  EXPECT_EQ(::fcntl(arena.fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(Arena, EveryFlippedByteOfHeaderAndPlanIsAnErrorOrHarmless) {
  const Arena arena = MakeArena(SmallPlan());
  const std::vector<char> good = BytesOf(arena);
  int refused = 0;
  const auto step = static_cast<std::size_t>(Turns(1, 7));
  for (std::size_t at = 0; at < kHeaderBytes + ToJson(arena.plan()).size(); at += step) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::vector<char> bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      const Result<Arena> adopted = Arena::Adopt(FileWith(bytes));
      if (!adopted.ok()) {
        ++refused;
        EXPECT_TRUE(adopted.status().code() == Code::kFailedPrecondition ||
                    adopted.status().code() == Code::kDataLoss)
            << at << ": " << adopted.status().ToString();
        EXPECT_FALSE(adopted.status().message().empty());
        continue;
      }
      // What may differ: identification, and bytes that nobody reads.
      EXPECT_EQ(adopted->plan().Hash(), arena.plan().Hash()) << "byte " << at;
      EXPECT_EQ(adopted->memory().floats, arena.memory().floats);
    }
  }
  EXPECT_GT(refused, Turns(1000, 130));
  EXPECT_TRUE(Arena::Adopt(FileWith(good)).ok()) << "the unchanged copy must be good";
}

TEST(Arena, TruncatedFilesAreRefusedAtEveryLength) {
  const std::vector<char> good = BytesOf(MakeArena(SmallPlan()));
  for (std::size_t size = 0; size < good.size(); size += size < 5000 ? 251 : 4096) {
    const Result<Arena> adopted =
        Arena::Adopt(FileWith({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)}));
    EXPECT_FALSE(adopted.ok()) << size;
  }
  std::vector<char> longer = good;
  longer.resize(good.size() + 4096);
  EXPECT_EQ(Arena::Adopt(FileWith(longer)).status().code(), Code::kDataLoss);
}

TEST(Arena, MissingSealsAreNamed) {
  const std::vector<char> good = BytesOf(MakeArena(SmallPlan()));
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_SEAL,
                          F_SEAL_SHRINK | F_SEAL_SEAL, F_SEAL_GROW | F_SEAL_SEAL}) {
    const Result<Arena> adopted = Arena::Adopt(FileWith(good, seals));
    ASSERT_FALSE(adopted.ok());
    EXPECT_EQ(adopted.status().code(), Code::kFailedPrecondition);
    EXPECT_THAT(adopted.status().message(), HasSubstr("seals"));
  }
}

TEST(Arena, FilesThatAreNotMemoryAreRefused) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const FileDescriptor write_end(pipe_ends[1]);
  EXPECT_EQ(Arena::Adopt(FileDescriptor(pipe_ends[0])).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(Arena::Adopt(FileDescriptor(::open("/proc/self/exe", O_RDONLY))).status().code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(Arena::Adopt(FileDescriptor()).status().code(), Code::kFailedPrecondition);
}

TEST(Arena, FilesWithHolesAreRefusedBeforeTheyCostMemory) {
  FileDescriptor fd(::memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(fd.get(), off_t{1} << 28), 0);
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, kAllSeals), 0);
  const Result<Arena> adopted = Arena::Adopt(std::move(fd));
  ASSERT_EQ(adopted.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(adopted.status().message(), HasSubstr("reserved"));
}

TEST(Arena, WhatIsNotPublishedIsNotAdopted) {
  Arena arena = MakeArena(SmallPlan(), /*publish=*/false);
  const Result<Arena> early = Arena::Adopt(Duplicate(arena.fd()));
  ASSERT_EQ(early.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(early.status().message(), HasSubstr("publish"));
  arena.Publish();
  EXPECT_TRUE(Arena::Adopt(Duplicate(arena.fd())).ok());
  // Memory whose creator died before the first word.
  EXPECT_FALSE(Arena::Adopt(FileWith(std::vector<char>(1 << 16, 0))).ok());
}

TEST(Arena, OtherBuildsAreNamed) {
  const std::vector<char> good = BytesOf(MakeArena(SmallPlan()));
  std::vector<char> bytes = good;
  Put(bytes, offsetof(ArenaHeader, layout_version), std::uint32_t{kLayoutVersion + 1});
  Status status = Arena::Adopt(FileWith(bytes)).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("layout " + std::to_string(kLayoutVersion + 1)));
  bytes = good;
  Put(bytes, offsetof(ArenaHeader, magic), std::uint64_t{0x0102030405060708});
  status = Arena::Adopt(FileWith(bytes)).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("not a passel arena"));
}

void ExpectRefused(const Result<Arena>& adopted, const std::string& what) {
  ASSERT_FALSE(adopted.ok()) << what;
  EXPECT_TRUE(adopted.status().code() == Code::kFailedPrecondition ||
              adopted.status().code() == Code::kDataLoss ||
              adopted.status().code() == Code::kResourceExhausted)
      << what << ": " << adopted.status().ToString();
}

const std::uint64_t kHostile[] = {0,
                                  1,
                                  std::uint64_t{1} << 31,
                                  (std::uint64_t{1} << 32) - 1,
                                  std::uint64_t{1} << 63,
                                  ~std::uint64_t{0} - 127,
                                  ~std::uint64_t{0}};

TEST(Arena, HostileNumbersInTheHeaderAreRefused) {
  const std::vector<char> good = BytesOf(MakeArena(SmallPlan()));
  for (const std::size_t at :
       {offsetof(ArenaHeader, size_bytes), offsetof(ArenaHeader, plan_bytes)}) {
    for (const std::uint64_t value : kHostile) {
      for (const std::uint64_t difference : {0, 1, 4096}) {
        std::vector<char> bytes = good;
        Put(bytes, at, value + difference);
        ExpectRefused(Arena::Adopt(FileWith(bytes)), std::to_string(value));
      }
    }
  }
  for (const std::uint32_t shard : {1U, 15U, 16U, 1U << 31, ~0U}) {
    std::vector<char> bytes = good;
    Put(bytes, offsetof(ArenaHeader, shard), shard);
    ExpectRefused(Arena::Adopt(FileWith(bytes)), std::to_string(shard));
  }
}

// What an attacker would write: any text as the plan, with its size and, if it is one, its hash.
std::vector<char> WithPlan(std::vector<char> bytes, const std::string& text) {
  PASSEL_CHECK(kHeaderBytes + text.size() <= bytes.size(), "there is room for it");
  Put(bytes, offsetof(ArenaHeader, plan_bytes), std::uint64_t{text.size()});
  const Result<StorePlan> plan = PlanFromJson(text);
  if (plan.ok()) Put(bytes, offsetof(ArenaHeader, plan_hash), plan->Hash());
  std::memcpy(bytes.data() + kHeaderBytes, text.data(), text.size());
  return bytes;
}

TEST(Arena, HostileValuesAreRefusedInEveryFieldOfAPlanWithAMatchingHash) {
  const std::vector<char> good = BytesOf(MakeArena(SmallPlan()));
  const auto plan = nlohmann::ordered_json::parse(ToJson(SmallPlan()));
  ASSERT_TRUE(Arena::Adopt(FileWith(WithPlan(good, plan.dump()))).ok());
  std::vector<nlohmann::ordered_json> values = {nullptr,
                                                true,
                                                -1,
                                                0.5,
                                                1e300,
                                                "",
                                                "v0",
                                                std::string(200, 'x'),
                                                nlohmann::ordered_json::array(),
                                                nlohmann::ordered_json::object(),
                                                15,
                                                16,
                                                17,
                                                257,
                                                4097,
                                                65537,
                                                1 << 24,
                                                (1 << 24) + 16};
  for (const std::uint64_t value : kHostile) values.emplace_back(value);
  int tried = 0;
  const nlohmann::ordered_json leaves = plan.flatten();
  for (const auto& [place, before] : leaves.items()) {
    for (const nlohmann::ordered_json& value : values) {
      nlohmann::ordered_json changed = plan;
      changed[nlohmann::ordered_json::json_pointer(place)] = value;
      if (changed == plan) continue;
      ++tried;
      const std::string text = changed.dump();
      const Result<Arena> adopted = Arena::Adopt(FileWith(WithPlan(good, text)));
      if (adopted.ok()) {  // another plan that fits
        EXPECT_TRUE(adopted->plan().Validate().ok());
        EXPECT_EQ(ToJson(adopted->plan()), text);
        EXPECT_LE(ArenaBytes(adopted->plan(), 0).value(), good.size());
        continue;
      }
      ExpectRefused(adopted, place + " = " + value.dump());
    }
  }
  EXPECT_GT(tried, 500);
  for (const std::string& text :
       {plan.dump(2), plan.dump() + " ", plan.dump() + std::string(1, '\0'), std::string("{}"),
        std::string(), std::string(3000, '['), plan.dump().substr(1)}) {
    ExpectRefused(Arena::Adopt(FileWith(WithPlan(good, text))), text);
  }
}

TEST(Arena, AnotherPlanWithItsOwnHashDoesNotFitTheFile) {
  // The header of larger plans, consistent in itself, on a small file.
  const std::vector<char> small = BytesOf(MakeArena(SmallPlan()));
  const StorePlan plans[] = {Plan({{30, 7}, {7}}, 3, Mode::kBarrier, "adam"),
                             Plan({{3000, 7}, {7}}, 2, Mode::kBarrier, "adam"),
                             Plan({{std::int64_t{1} << 50}}, 2, Mode::kHogwild, "sgd"),
                             Plan({{30, 7}, {1 << 20}}, 2, Mode::kLocked, "adam")};
  for (StorePlan plan : plans) {
    plan.block_floats = std::size_t{1} << 24;  // few blocks also for the largest
    std::vector<char> bytes(small.size(), 0);
    ASSERT_LE(kHeaderBytes + ToJson(plan).size(), bytes.size());
    ASSERT_GT(ArenaBytes(plan, 0).value(), bytes.size());
    WriteHeader(plan, 0, "x", bytes.size(), bytes.data());
    Put(bytes, offsetof(ArenaHeader, ready), std::uint32_t{1});
    const Result<Arena> adopted = Arena::Adopt(FileWith(bytes));
    ASSERT_FALSE(adopted.ok());
    EXPECT_EQ(adopted.status().code(), Code::kDataLoss) << adopted.status().ToString();
  }
}

TEST(Arena, OverheadIsAtMostTwoPercentAndTwoMebibytes) {
  const std::vector<std::pair<const char*, std::vector<std::vector<std::int64_t>>>> models = {
      {"MNIST MLP", {{784, 100}, {100}, {100, 10}, {10}}}, {"16M floats", {{4096, 4096}}}};
  for (const auto& [name, shapes] : models) {
    for (const Mode mode : {Mode::kHogwild, Mode::kLocked, Mode::kBarrier}) {
      for (const char* optimizer : {"sgd", "adam"}) {
        const StorePlan plan = Plan(shapes, 4, mode, optimizer);
        const std::uint64_t bytes = ArenaBytes(plan, 0).value();
        const double values = 4.0 * static_cast<double>(plan.variables.TotalElements());
        const double copies = 1.0 + NumSlots(plan.optimizer) + 4 * plan.gradient_slots;
        EXPECT_LE(static_cast<double>(bytes), 1.02 * values * copies + (2 << 20))
            << name << " " << ModeName(mode) << " " << optimizer << ": " << bytes << " for "
            << values * copies;
      }
    }
  }
}

TEST(Arena, TooLittleMemoryIsAnErrorWithNumbers) {
  const StorePlan plan = SmallPlan();
  const std::uint64_t needed = ArenaBytes(plan, 0).value();
  ArenaOptions options;
  options.job_id = "arena-test";
  const Result<Arena> short_by_one =
      Arena::Create(plan, 0, options, {needed - 1, "the cgroup /test (memory.max = 77 bytes)"});
  ASSERT_EQ(short_by_one.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(short_by_one.status().message(), HasSubstr(std::to_string(needed)));
  EXPECT_THAT(short_by_one.status().message(), HasSubstr(std::to_string(needed - 1)));
  EXPECT_THAT(short_by_one.status().message(), HasSubstr("the cgroup /test"));
  EXPECT_TRUE(Arena::Create(plan, 0, options, {needed, "x"}).ok());
  // And what no address space holds.
  StorePlan vast = Plan({{std::int64_t{1} << 56}}, kMaxWorkers, Mode::kHogwild, "adam");
  vast.block_floats = 1 << 24;
  EXPECT_FALSE(Arena::Create(vast, 0, options, kPlenty).ok());
}

TEST(Arena, JobIdsThatDoNotFitAreRefused) {
  ArenaOptions options;
  options.job_id = std::string(kMaxJobIdBytes, 'j');
  EXPECT_EQ(Arena::Create(SmallPlan(), 0, options, kPlenty)->job_id(), options.job_id);
  options.job_id += 'j';
  EXPECT_EQ(Arena::Create(SmallPlan(), 0, options, kPlenty).status().code(),
            Code::kInvalidArgument);
}

TEST(Arena, HugePagesAreReportedAsTheyAre) {
  for (const HugePages wish : {HugePages::kOff, HugePages::kTransparent, HugePages::kExplicit}) {
    ArenaOptions options;
    options.job_id = "huge";
    options.huge_pages = wish;
    const Result<Arena> arena = Arena::Create(SmallPlan(), 0, options, kPlenty);
    ASSERT_TRUE(arena.ok()) << arena.status().ToString();
    const std::string& report = arena->huge_page_report();
    if (wish == HugePages::kOff) {
      EXPECT_EQ(report, "");
      continue;
    }
    struct stat info;
    ASSERT_EQ(::fstat(arena->fd(), &info), 0);
    const bool explicit_pages = static_cast<std::size_t>(info.st_blksize) >= kHugePageBytes;
    if (explicit_pages) {
      EXPECT_THAT(report, HasSubstr("pages of 2 MiB hold the arena"));
    } else if (report.find("transparent ones hold") == std::string::npos) {
      EXPECT_THAT(report, HasSubstr("not in effect"));
      EXPECT_THAT(report, HasSubstr("4 KiB pages are used"));
    }
    EXPECT_EQ(explicit_pages && wish == HugePages::kTransparent, false);
  }
}

TEST(Arena, ShortOfDescriptorsIsAnErrorAtEveryCount) {
  if (kSanitized) {
    GTEST_SKIP() << "the sanitizer itself probes memory with pipes, and reports when it gets none";
  }
  const Arena arena = MakeArena(SmallPlan());
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  // The lowest descriptor that is free.
  const int next = Duplicate(arena.fd()).get() + 1;
  bool failed = false;
  for (int spare = 0; spare <= 6; ++spare) {
    FileDescriptor fd = Duplicate(arena.fd());
    rlimit tight = before;
    tight.rlim_cur = static_cast<rlim_t>(next + spare);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
    ArenaOptions options;
    options.job_id = "fds";
    const Result<Arena> created = Arena::Create(SmallPlan(), 0, options, kPlenty);
    const Result<Arena> adopted = Arena::Adopt(std::move(fd));
    const auto store = adopted.ok()
                           ? OpenStore(arena.plan(), std::vector{adopted->memory()}, 0,
                                       SelfIdentity(), WaitOptions())
                           : Result<std::unique_ptr<ParameterStore>>(Internal("not adopted"));
    const Result<MemoryBudget> budget = ReadMemoryBudget();
    ::setrlimit(RLIMIT_NOFILE, &before);
    for (const Status& status :
         {created.ok() ? Status() : created.status(), adopted.ok() ? Status() : adopted.status(),
          store.ok() ? Status() : store.status(), budget.ok() ? Status() : budget.status()}) {
      if (!status.ok()) failed = true;
    }
    EXPECT_TRUE(adopted.ok()) << "adopting needs no further descriptor";
    if (store.ok()) {
      EXPECT_EQ((*store)->membership()[0].pid, ::getpid()) << "joined under its own name";
      EXPECT_TRUE((*store)->Leave().ok());
    }
  }
  EXPECT_TRUE(failed) << "the limit was never reached";
}

}  // namespace
}  // namespace passel::shm

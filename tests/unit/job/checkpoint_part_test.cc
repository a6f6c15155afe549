#include "job/checkpoint_part.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "io/checked_tensors.h"
#include "io/checkpoint_folder.h"
#include "support/crash_states.h"
#include "support/failing_ops.h"
#include "support/file_text.h"
#include "support/reference_script.h"
#include "support/temp_dir.h"
#include "unit/job/checkpoint_sample.h"

namespace passel::job::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::vector<float> FloatsOf(const TensorFile& file, const std::string& name) {
  const TensorFile::Tensor* const tensor = file.Find(name);
  if (tensor == nullptr) return {};
  std::vector<float> floats(tensor->bytes / sizeof(float));
  EXPECT_TRUE(file.Read(*tensor, 0, std::as_writable_bytes(std::span(floats))).ok());
  return floats;
}

std::vector<std::int64_t> NumbersOf(const TensorFile& file, const std::string& name) {
  const TensorFile::Tensor* const tensor = file.Find(name);
  if (tensor == nullptr || tensor->dtype != DType::kI64) return {};
  std::vector<std::int64_t> numbers(tensor->bytes / sizeof(std::int64_t));
  EXPECT_TRUE(file.Read(*tensor, 0, std::as_writable_bytes(std::span(numbers))).ok());
  return numbers;
}

std::set<std::string> NamesOf(const TensorFile& file) {
  std::set<std::string> names;
  for (const auto& tensor : file.tensors()) names.insert(tensor.name);
  return names;
}

class CheckpointPartTest : public ::testing::Test {
 protected:
  std::mt19937 random_{15};
  const test::TempDir dir_;
};

TEST_F(CheckpointPartTest, HasTheReferencesNamesAndAllThatIsKnownOfTheJob) {
  SampleJob job(SampleModel({5}), Optimizer("adam"), 2, random_);
  std::vector<VariableInfo> pieces(3);
  pieces[0].name = "hid_w/part_0";
  pieces[0].logical = pieces[1].logical = "hid_w";
  pieces[0].shape = {4, 5};
  pieces[1].name = "hid_w/part_1";
  pieces[1].shape = {7, 5};
  pieces[1].first_row = 4;
  pieces[1].shard = 1;
  pieces[2].name = pieces[2].logical = "hid_b";
  pieces[2].shape = {5};
  job.plan.variables = *VariableTable::Build(pieces, 2);
  job.contents.clear();
  for (int s = 0; s < 2; ++s) {
    auto& shard = job.contents.emplace_back();
    for (int k = 0; k < 3; ++k) {
      shard.push_back(RandomFloats(job.plan.variables.ShardFloats(s), random_));
    }
  }
  job.WriteAll(dir_.path());
  EXPECT_THAT(dir_.List(), ElementsAre("model.ckpt-500-00000-of-00002.safetensors",
                                       "model.ckpt-500-00001-of-00002.safetensors"));
  const auto files = OpenCheckpoint(dir_.path(), "model.ckpt-500");
  ASSERT_TRUE(files.ok()) << files.status().ToString();
  const TensorFile& lead = (*files)[0];
  const TensorFile& other = (*files)[1];
  EXPECT_EQ(NamesOf(lead), (std::set<std::string>{
                               "hid_w/part_0", "hid_w/part_0/Adam", "hid_w/part_0/Adam_1", "hid_b",
                               "hid_b/Adam", "hid_b/Adam_1", "ps/0/version", "ps/0/optimizer_step",
                               "global_step", "worker/clocks", "worker/cursors",
                               "worker/local_steps", "beta1_power", "beta2_power"}));
  EXPECT_EQ(NamesOf(other),
            (std::set<std::string>{"hid_w/part_1", "hid_w/part_1/Adam", "hid_w/part_1/Adam_1",
                                   "ps/1/version", "ps/1/optimizer_step"}));
  EXPECT_THAT(NumbersOf(lead, "global_step"), ElementsAre(500));
  EXPECT_THAT(NumbersOf(lead, "ps/0/version"), ElementsAre(500));
  EXPECT_THAT(NumbersOf(lead, "ps/0/optimizer_step"), ElementsAre(499));
  EXPECT_THAT(NumbersOf(other, "ps/1/version"), ElementsAre(501));
  EXPECT_THAT(NumbersOf(other, "ps/1/optimizer_step"), ElementsAre(498));
  EXPECT_THAT(NumbersOf(lead, "worker/clocks"), ElementsAre(40, 41));
  EXPECT_THAT(NumbersOf(lead, "worker/cursors"), ElementsAre(3, 70, 4, 71));
  EXPECT_EQ(lead.Find("worker/cursors")->shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_THAT(NumbersOf(lead, "worker/local_steps"), ElementsAre(250, 251));
  EXPECT_TRUE(lead.Find("global_step")->shape.empty());
  // As TensorFlow has them after 499 updates: they begin at beta.
  EXPECT_FLOAT_EQ(FloatsOf(lead, "beta1_power")[0], static_cast<float>(std::pow(0.9, 500)));
  EXPECT_FLOAT_EQ(FloatsOf(lead, "beta2_power")[0], static_cast<float>(std::pow(0.999, 500)));
  const std::pair<const char*, const char*> words[] = {
      {"format", "passel-2"},
      {"model", "mlp"},
      {"hidden", "5"},
      {"mode", "locked"},
      {"optimizer", "adam"},
      {"slots", "Adam,Adam_1"},
      {"exact", "false"},
      {"cluster", "{\"ps\":2,\"workers\":2}"},
      {"global_step", "500"},
      {"rows/hid_w/part_0", "0 11"},
      {"data", "{\"hash\":\"abc\"}"},
      {"settings", "{\"learning_rate\":\"0.01\"}"}};
  for (const auto& [key, value] : words) EXPECT_EQ(lead.Word(key), value) << key;
  EXPECT_EQ(other.Word("rows/hid_w/part_1"), "4 11");
  EXPECT_EQ(lead.Word("rows/hid_b"), "");
  EXPECT_TRUE(SameBits(FloatsOf(other, "hid_w/part_1/Adam_1"),
                       {job.contents[1][2].begin(), job.contents[1][2].begin() + 35}));
}

TEST_F(CheckpointPartTest, SlotsHaveTensorFlowsNamesInTheOrderOfTheUpdate) {
  OptimizerConfig centered = Optimizer("rmsprop");
  centered.centered = 1;
  for (const auto& [optimizer, slots] :
       std::vector<std::pair<OptimizerConfig, std::vector<std::string>>>{
           {Optimizer("sgd"), {}},
           {Optimizer("momentum"), {"Momentum"}},
           {Optimizer("nesterov"), {"Momentum"}},
           {Optimizer("adagrad"), {"Adagrad"}},
           {Optimizer("rmsprop"), {"RMSProp", "RMSProp_1"}},   // mean square, momentum
           {centered, {"RMSProp", "RMSProp_1", "RMSProp_2"}},  // ..., mean gradient, ...
           {Optimizer("adam"), {"Adam", "Adam_1"}},            // m, v
           {Optimizer("ftrl"), {"Ftrl", "Ftrl_1"}},            // accumulator, linear
           {Optimizer("adamw"), {"AdamW", "AdamW_1"}}}) {
    EXPECT_EQ(OptimizerWordsOf(optimizer).slots, slots) << OptimizerName(optimizer.kind);
    const SampleJob job(SampleModel(), optimizer, 1, random_);
    ASSERT_TRUE(job.Write(dir_.path(), 0).ok());
    const auto file = OpenCheckedTensors(PartPath(dir_.path(), 500, 0, 1));
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    for (const VariableInfo& v : job.plan.variables.all()) {
      for (std::size_t k = 0; k <= slots.size(); ++k) {
        const std::string name = k == 0 ? v.name : v.name + "/" + slots[k - 1];
        EXPECT_TRUE(SameBits(FloatsOf(*file, name), job.PieceOf(v, k))) << name;
      }
    }
    const bool powers =
        optimizer.kind == OptimizerKind::kAdam || optimizer.kind == OptimizerKind::kAdamW;
    EXPECT_EQ(file->Find("beta1_power") != nullptr, powers);
  }
}

// Blocks that end within variables, and variables within blocks.
TEST_F(CheckpointPartTest, BlocksOfAnySizeMakeTheSameFile) {
  SampleJob job(SampleModel({7, 40}), Optimizer("momentum"), 1, random_);
  std::set<std::string> contents;
  for (const std::size_t block : {16u, 32u, 48u, 240u, 2048u}) {
    job.plan.block_floats = block;
    const auto written = job.Write(dir_.path(), 0);
    ASSERT_TRUE(written.ok()) << written.status().ToString();
    EXPECT_EQ(written->blocks, job.plan.NumBlocks(0));
    EXPECT_EQ(written->mixed, 0u);
    const std::string path = PartPath(dir_.path(), 500, 0, 1);
    EXPECT_EQ(written->bytes, std::filesystem::file_size(path));
    const std::string file = test::FileText(path);
    std::uint64_t header = 0;
    std::memcpy(&header, file.data(), 8);
    contents.insert(file.substr(8 + header));
    // No padding between the variables.
    std::size_t bytes = 8 * (2 + 1 + 2 * 4);
    for (const VariableInfo& v : job.plan.variables.all()) bytes += 2 * 4 * v.elements;
    EXPECT_EQ(contents.begin()->size(), bytes);
  }
  EXPECT_EQ(contents.size(), 1u);
}

// Says of some blocks that they are mixed; ends at one.
class LiveSource : public PartSource {
 public:
  LiveSource(CopySource copy, std::set<std::size_t> mixed, std::size_t last)
      : copy_(std::move(copy)), mixed_(std::move(mixed)), last_(last) {}
  Result<bool> ReadBlock(std::size_t block, std::span<float* const> out) override {
    EXPECT_EQ(block, next_++);
    if (block == last_) return DeadlineExceeded("block 4 was held by worker 3 for 10 s");
    PASSEL_RETURN_IF_ERROR(copy_.ReadBlock(block, out).status());
    return !mixed_.contains(block);
  }

 private:
  CopySource copy_;
  const std::set<std::size_t> mixed_;
  const std::size_t last_;
  std::size_t next_ = 0;
};

TEST_F(CheckpointPartTest, SaysHowManyBlocksMayBeMixed) {
  const SampleJob job(SampleModel({40}), Optimizer("adam"), 1, random_);
  LiveSource source(job.Source(0), {1, 3, 4}, SIZE_MAX);
  const auto written = WritePart(job.Order(dir_.path(), 0), job.plan, job.progress, source);
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  EXPECT_EQ(written->mixed, 3u);
  EXPECT_GT(written->blocks, 9u);
  const auto file = OpenCheckedTensors(PartPath(dir_.path(), 500, 0, 1));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->Word("mixed_blocks"), " 3 of " + std::to_string(written->blocks));
}

TEST_F(CheckpointPartTest, AnErrorOfTheSourceLeavesWhatWasThere) {
  const SampleJob job(SampleModel({40}), Optimizer("adam"), 1, random_);
  ASSERT_TRUE(job.Write(dir_.path(), 0).ok());
  const std::string before = test::FileText(PartPath(dir_.path(), 500, 0, 1));
  LiveSource source(job.Source(0), {}, 4);
  const auto written = WritePart(job.Order(dir_.path(), 0), job.plan, job.progress, source);
  EXPECT_EQ(written.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(written.status().message(), HasSubstr("worker 3"));
  EXPECT_EQ(dir_.List().size(), 1u);
  EXPECT_EQ(test::FileText(PartPath(dir_.path(), 500, 0, 1)), before);
}

// Needs a Python that has the modules safetensors and numpy.
TEST_F(CheckpointPartTest, TheReferencesReaderReadsEveryBit) {
  const std::string script = PASSEL_SOURCE_DIR "/tests/unit/io/safetensors_reference.py";
  std::string output;
  if (test::CannotRun(test::RunReference(script, "check", &output))) {
    GTEST_SKIP() << "no Python with safetensors and numpy (set PASSEL_TEST_PYTHON): " << output;
  }
  const SampleJob job(SampleModel({6, 4}), Optimizer("adam"), 2, random_);
  job.WriteAll(dir_.path());
  for (int part = 0; part < 2; ++part) {
    const std::string path = PartPath(dir_.path(), 500, part, 2);
    std::string dump;
    ASSERT_EQ(test::RunReference(script, "dump " + path, &dump), 0) << dump;
    const auto file = OpenCheckedTensors(path);
    ASSERT_TRUE(file.ok());
    for (const auto& [key, value] : file->metadata()) {
      EXPECT_THAT(dump, HasSubstr(key + "=" + value + "\n"));
    }
    for (const VariableInfo& v : job.plan.variables.all()) {
      if (v.shard != part) continue;
      for (std::size_t k = 0; k < 3; ++k) {
        std::string line = fmt::format("{}{} float32 [{}] ", v.name,
                                       k == 0   ? ""
                                       : k == 1 ? "/Adam"
                                                : "/Adam_1",
                                       fmt::join(v.shape, ","));
        const std::vector<float> floats = job.PieceOf(v, k);
        for (const std::byte byte : std::as_bytes(std::span(floats))) {
          line += fmt::format("{:02x}", static_cast<int>(byte));
        }
        EXPECT_THAT(dump, HasSubstr(line + "\n"));
      }
    }
    if (part == 0) {
      EXPECT_THAT(dump, HasSubstr("global_step int64 [] f401000000000000\n"));
      EXPECT_THAT(dump, HasSubstr("worker/clocks int64 [2] 28000000000000002900000000000000\n"));
    }
  }
}

TEST_F(CheckpointPartTest, AnOrderComesOverTheWireAsItWas) {
  const SampleJob job(SampleModel(), Optimizer("adam"), 3, random_);
  const PartOrder order = job.Order("/a folder/\"ä\\\n", 2);
  const auto read = PartOrderFromJson(ToJson(order));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, order);
}

TEST_F(CheckpointPartTest, AnOrderThatIsNoneIsRefused) {
  const SampleJob job(SampleModel(), Optimizer("adam"), 3, random_);
  const PartOrder order = job.Order("/f", 2);
  const auto error = [](const std::string& text) {
    const auto read = PartOrderFromJson(text);
    EXPECT_EQ(read.status().code(), Code::kInvalidArgument) << text;
    return read.status().message();
  };
  EXPECT_THAT(error(""), HasSubstr("the order to save"));
  EXPECT_THAT(error("[]"), HasSubstr("an object { } is expected"));
  const auto with = [&](auto change) {
    PartOrder changed = order;
    change(changed);
    return error(ToJson(changed));
  };
  EXPECT_THAT(with([](PartOrder& o) { o.folder.clear(); }), HasSubstr("\"folder\" must name one"));
  EXPECT_THAT(with([](PartOrder& o) { o.save.clear(); }), HasSubstr("\"save\" must be a word"));
  EXPECT_THAT(with([](PartOrder& o) { o.save.assign(65, 'x'); }), HasSubstr("\"save\" has 65"));
  EXPECT_THAT(with([](PartOrder& o) { o.part = 3; }), HasSubstr("less than \"parts\""));
  EXPECT_THAT(with([](PartOrder& o) { o.part = -1; }), HasSubstr("\"part\" must be"));
  EXPECT_THAT(with([](PartOrder& o) { o.parts = 100'000; }), HasSubstr("\"parts\" must be"));
  EXPECT_THAT(with([](PartOrder& o) { o.step = -1; }), HasSubstr("\"step\" must be"));
  const auto replaced = [&](const char* from, const char* to) {
    std::string text = ToJson(order);
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return error(text.replace(at, std::strlen(from), to));
  };
  EXPECT_THAT(replaced("\"mode\":\"locked\"", "\"mode\":1"), HasSubstr("must be texts"));
  EXPECT_THAT(replaced("\"parts\":", "\"pieces\":"), HasSubstr("\"pieces\" is not known"));
  EXPECT_THAT(replaced("\"part\":", "\"other\":1,\"part\":"), HasSubstr("other"));
  // One that does not fit the plan.
  for (const auto& [part, parts] : {std::pair{3, 4}, {0, 2}, {2, 2}}) {
    PartOrder wrong = job.Order(dir_.path(), 0);
    wrong.part = part;
    wrong.parts = parts;
    CopySource source = job.Source(0);
    const auto written = WritePart(wrong, job.plan, job.progress, source);
    EXPECT_EQ(written.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(written.status().message(), HasSubstr("none of a checkpoint of 3 shards"));
  }
  EXPECT_THAT(dir_.List(), IsEmpty());
}

TEST_F(CheckpointPartTest, WhateverCallFailsTheFormerOneIsThereAndNothingElse) {
  const SampleJob former(SampleModel(), Optimizer("adam"), 1, random_);
  const SampleJob job(SampleModel(), Optimizer("adam"), 1, random_);
  const std::string path = PartPath(dir_.path(), 500, 0, 1);
  std::set<std::string> failed;
  for (const int error : {EIO, ENOSPC, EDQUOT, EROFS}) {
    for (int n = 1;; ++n) {
      ASSERT_TRUE(former.Write(dir_.path(), 0).ok());
      const std::string before = test::FileText(path);
      test::FailingOps ops(n, error);
      const auto written = job.Write(dir_.path(), 0, ops);
      if (ops.failed().empty()) {
        EXPECT_TRUE(written.ok());
        break;
      }
      failed.insert(ops.failed());
      EXPECT_THAT(written.status().message(),
                  AllOf(HasSubstr(dir_.path()), HasSubstr(std::strerror(error))));
      EXPECT_EQ(dir_.List().size(), 1u);
      // Once it is renamed it is there, whether or not a power cut may take it back.
      EXPECT_EQ(test::FileText(path) == before, ops.failed() != "fsync of the folder");
    }
  }
  EXPECT_THAT(failed, UnorderedElementsAre("open", "write", "fsync", "close", "rename",
                                           "fsync of the folder"));
}

TEST_F(CheckpointPartTest, WhateverACrashLeavesThePartIsWholeOrNotThere) {
  const SampleJob job(SampleModel(), Optimizer("adam"), 1, random_);
  const std::string path = PartPath(dir_.path(), 500, 0, 1);
  test::RecordedOps ops;
  ASSERT_TRUE(job.Write(dir_.path(), 0, ops).ok());
  const std::string whole = test::FileText(path);
  int absent = 0, present = 0;
  const std::size_t states = ops.ForEachCrash({}, [&](const test::RecordedOps::Files& left) {
    const auto part = left.find(path);
    if (part == left.end()) {
      ++absent;
      return;
    }
    ++present;
    EXPECT_EQ(part->second, whole);
  });
  EXPECT_GT(states, 20u);
  EXPECT_GT(absent, 0);
  EXPECT_GT(present, 0);
}

}  // namespace
}  // namespace passel::job::testing

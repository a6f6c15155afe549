// What a last save makes of values that are worth no checkpoint, or that tasks which were killed
// have left half done.

#include "job/checkpoint_save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "job/checkpoint_source.h"
#include "store/open_store.h"
#include "support/temp_dir.h"
#include "train/checkpoint_set.h"
#include "train/checkpoint_words.h"
#include "unit/job/checkpoint_sample.h"

namespace passel::job::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kFormer = 7;  // the step of a checkpoint that is said to be there

// A job of two ps whose variables have values, and its folder.
class SavedSample {
 public:
  explicit SavedSample(Mode mode, const ModelConfig& model = SampleModel(),
                       std::size_t block_floats = 16,
                       OptimizerKind optimizer = OptimizerKind::kSgd) {
    config_.model = model;
    plan_.mode.mode = mode;
    plan_.optimizer.kind = optimizer;
    plan_.block_floats = block_floats;
    std::mt19937 random(1);
    plan_.variables = RandomTable(config_.model, 2, random);
    arena_ = std::move(*InProcessArena::Create(plan_));
    store_ = std::move(*arena_->Open(0));
    const Status given = store_->Initialize([](VarId, std::span<float> out) {
      for (float& value : out) value = 0.5f;
    });
    EXPECT_TRUE(given.ok()) << given.ToString();
    for (int s = 0; s < 2; ++s) shards_.push_back(arena_->shard(s));
    Result<CheckpointFolder> folder = CheckpointFolder::Own(dir_.path(), {}, 1);
    EXPECT_TRUE(folder.ok()) << folder.status().ToString();
    folder_.emplace(std::move(*folder));
  }

  const ShardMemory& shard(std::size_t s) const { return shards_[s]; }
  const VariableTable& variables() const { return plan_.variables; }

  Result<SaveOutcome> Save(std::optional<std::int64_t> saved, AtEnd at_end) {
    const SavedJob job{config_, settings_, plan_, data_, shards_, names_};
    const SaveLimits limits{quit_, Deadline::After(std::chrono::seconds(20))};
    return SaveCheckpoint(job, saved, at_end, limits, *folder_);
  }
  const std::string& folder() const { return dir_.path(); }
  std::optional<CheckpointSet> Newest() const {
    Result<CheckpointSet> set = CheckpointSet::OpenNewest(dir_.path());
    if (!set.ok()) return {};
    return std::move(*set);
  }

 private:
  test::TempDir dir_;
  JobConfig config_;
  JobSettings settings_;
  StorePlan plan_;
  const std::string data_;
  const WorkerNames names_;
  std::atomic<bool> quit_{false};
  std::unique_ptr<InProcessArena> arena_;
  std::unique_ptr<ParameterStore> store_;
  std::vector<ShardMemory> shards_;
  std::optional<CheckpointFolder> folder_;
};

TEST(CheckpointSaveTest, ValuesThatAreNotFiniteAreSavedByNobody) {
  for (const AtEnd at_end : {AtEnd::kNobodyTrains, AtEnd::kOthersTrain}) {
    for (const std::size_t shard : {0, 1}) {
      SavedSample job(Mode::kHogwild);
      job.shard(shard).values[0] = kNan;
      const Result<SaveOutcome> saved = job.Save(std::nullopt, at_end);
      EXPECT_EQ(saved.status().code(), Code::kDiverged) << saved.status().ToString();
      EXPECT_THAT(saved.status().message(), ::testing::HasSubstr("not finite"));
      EXPECT_FALSE(job.Newest()) << "nothing is left of it";
    }
  }
}

// Read block by block, as without memory for a copy.
TEST(CheckpointSaveTest, BlocksThatAreNotFiniteEndThePart) {
  SavedSample job(Mode::kHogwild);
  const ShardMemory& shard = job.shard(0);
  const std::atomic<bool> quit{false};
  const SaveLimits limits{quit, Deadline::After(std::chrono::seconds(20))};
  const auto source = MakeCheckedSource(MakeLiveSource(shard), shard, limits);
  std::vector<float> block(shard.block_floats);
  float* const out = block.data();
  EXPECT_TRUE(source->ReadBlock(0, {&out, 1}).ok());
  shard.values[1] = kNan;
  EXPECT_EQ(source->ReadBlock(0, {&out, 1}).status().code(), Code::kDiverged);
}

TEST(CheckpointSaveTest, ARoundThatIsHalfAppliedIsNoCheckpoint) {
  using Damage = std::function<void(const ShardMemory& lead, const ShardMemory& other)>;
  const auto advance = [](const ShardMemory& shard) {
    shard.state->version.store(1);
    for (std::size_t b = 0; b < shard.num_blocks; ++b) shard.blocks[b].round.store(1);
  };
  const struct {
    const char* what;
    Damage damage;
  } cases[] = {
      {"a claim on a block",
       [](const auto&, const auto& other) { other.blocks[other.num_blocks - 1].claim.store(1); }},
      {"a block ahead of the others",
       [](const auto& lead, const auto&) { lead.blocks[0].round.store(1); }},
      {"a shard ahead of the other", [&](const auto&, const auto& other) { advance(other); }},
      {"a round that is not finished", [&](const auto& lead, const auto& other) {
         advance(lead);
         advance(other);
       }}};
  for (const auto& [what, damage] : cases) {
    SCOPED_TRACE(what);
    SavedSample job(Mode::kBarrier);
    damage(job.shard(0), job.shard(1));
    const Result<SaveOutcome> saved = job.Save(kFormer, AtEnd::kNobodyTrains);
    ASSERT_TRUE(saved.ok()) << saved.status().ToString();
    EXPECT_FALSE(saved->written);
    EXPECT_EQ(saved->newest, kFormer);
    EXPECT_FALSE(job.Newest());
  }
  SavedSample job(Mode::kBarrier);
  const Result<SaveOutcome> saved = job.Save(kFormer, AtEnd::kNobodyTrains);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  EXPECT_TRUE(saved->written);
  const std::optional<CheckpointSet> set = job.Newest();
  ASSERT_TRUE(set);
  EXPECT_TRUE(set->words().exact);
}

// Without rounds it is better than none, and says what it is.
TEST(CheckpointSaveTest, AnUpdateThatIsHalfAppliedIsSaid) {
  for (const bool killed : {false, true}) {
    SavedSample job(Mode::kHogwild);
    if (killed) job.shard(1).blocks[0].claim.store(1);
    const Result<SaveOutcome> saved = job.Save(kFormer, AtEnd::kNobodyTrains);
    ASSERT_TRUE(saved.ok()) << saved.status().ToString();
    const std::optional<CheckpointSet> set = job.Newest();
    ASSERT_TRUE(set);
    EXPECT_EQ(set->words().exact, !killed);
  }
}

// Whoever writes it waits for the copy, which is made meanwhile.
TEST(CheckpointSaveTest, WhatIsWrittenWhileItIsCopiedWasCopied) {
  SavedSample job(Mode::kHogwild, SampleModel({1'000'000}), 4096);
  const ShardMemory& shard = job.shard(1);
  const std::atomic<bool> quit{false};
  Result<std::vector<ShardBuffer>> buffers = MakeShardBuffers({&shard, 1}, true, 1, false);
  ASSERT_TRUE(buffers.ok()) << buffers.status().ToString();
  CopyEnd end;
  const auto source =
      MakeLiveCopy(shard, &job.shard(0), std::move((*buffers)[0]),
                   SaveLimits{quit, Deadline::After(std::chrono::seconds(20))}, &end);
  const float* const copy = source->whole()->contents[0];
  const std::size_t last = shard.floats - 1000;
  ASSERT_TRUE(source->CheckPiece({copy + last, 1000}).ok());
  EXPECT_TRUE(std::equal(copy + last, copy + shard.floats, shard.values + last));
  Words late;
  ASSERT_TRUE(source->EndOfPieces(&late).ok());
  EXPECT_TRUE(std::equal(copy, copy + shard.floats, shard.values));
  EXPECT_EQ(late[kLastStepKey], LastStepText(0));
  EXPECT_GT(end.ns, 0);

  const Result<SaveOutcome> saved = job.Save(std::nullopt, AtEnd::kOthersTrain);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  EXPECT_GT(saved->copying.count(), 0);
  const auto files = OpenCheckpoint(job.folder(), CheckpointName(*saved->newest));
  ASSERT_TRUE(files.ok()) << files.status().ToString();
  std::size_t floats = 0;
  for (const TensorFile& file : *files) {
    EXPECT_EQ(file.Word(kLastStepKey), LastStepText(0));
    for (const TensorFile::Tensor& tensor : file.tensors()) {
      if (tensor.dtype != DType::kF32) continue;
      std::vector<float> values(tensor.bytes / sizeof(float));
      ASSERT_TRUE(file.Read(tensor, 0, std::as_writable_bytes(std::span(values))).ok());
      EXPECT_TRUE(std::ranges::all_of(values, [](float value) { return value == 0.5f; }))
          << tensor.name;
      floats += values.size();
    }
  }
  EXPECT_GT(floats, 1'000'000u);
}

// Memory of the copy that has been written goes back while the rest is copied.
TEST(CheckpointSaveTest, EachFloatOfALargeJobIsWhereItBelongs) {
  SavedSample job(Mode::kHogwild, SampleModel({3'000'000}), 4096, OptimizerKind::kAdam);
  const auto value = [](std::size_t content, std::size_t i) {
    return static_cast<float>((i + content) % 65521);
  };
  for (std::size_t s = 0; s < 2; ++s) {
    const ShardMemory& shard = job.shard(s);
    for (std::size_t i = 0; i < shard.floats; ++i) {
      shard.values[i] = value(0, i);
      shard.slots[0][i] = value(1, i);
      shard.slots[1][i] = value(2, i);
    }
  }
  const Result<SaveOutcome> saved = job.Save(std::nullopt, AtEnd::kOthersTrain);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  const auto files = OpenCheckpoint(job.folder(), CheckpointName(*saved->newest));
  ASSERT_TRUE(files.ok()) << files.status().ToString();
  std::size_t floats = 0;
  for (const VariableInfo& v : job.variables().all()) {
    const TensorFile& file = (*files)[static_cast<std::size_t>(v.shard)];
    std::size_t content = 0;
    for (const char* const slot : {"", "/Adam", "/Adam_1"}) {
      const TensorFile::Tensor* const tensor = file.Find(v.name + slot);
      ASSERT_NE(tensor, nullptr) << v.name << slot;
      std::vector<float> read(v.elements);
      ASSERT_TRUE(file.Read(*tensor, 0, std::as_writable_bytes(std::span(read))).ok());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < read.size(); ++i)
        wrong += read[i] != value(content, v.offset + i);
      EXPECT_EQ(wrong, 0u) << v.name << slot;
      floats += read.size();
      ++content;
    }
  }
  EXPECT_GT(floats, 20'000'000u);
}

}  // namespace
}  // namespace passel::job::testing

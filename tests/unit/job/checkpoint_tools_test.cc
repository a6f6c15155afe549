// What `passel ckpt` does, without the program: checkpoints in several parts, compared with what
// went into them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <tuple>

#include "data/npy.h"
#include "data/zip_archive.h"
#include "io/checkpoint_folder.h"
#include "job/checkpoint_description.h"
#include "job/checkpoint_difference.h"
#include "job/checkpoint_export.h"
#include "job/checkpoint_listing.h"
#include "job/checkpoint_verification.h"
#include "job/stored_tensors.h"
#include "support/file_text.h"
#include "support/temp_dir.h"
#include "train/saved_model.h"
#include "unit/job/checkpoint_sample.h"

namespace passel::job::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

StoredTensors Stored(const std::string& path) {
  Result<StoredTensors> stored = StoredTensors::Open(path);
  EXPECT_TRUE(stored.ok()) << stored.status().ToString();
  return *std::move(stored);
}

void CommitAll(const SampleJob& job, const std::string& path) {
  job.WriteAll(path);
  auto folder = CheckpointFolder::Own(path, {}, 1000);
  ASSERT_TRUE(folder.ok()) << folder.status().ToString();
  const Status done = folder->Commit(500, job.plan.variables.shards(), 2000);
  ASSERT_TRUE(done.ok()) << done.ToString();
}

StoredDifference Difference(const std::string& one, const std::string& two,
                            Compare what = Compare::kAll) {
  const auto difference = FindDifferences(Stored(one), Stored(two), what);
  EXPECT_TRUE(difference.ok()) << difference.status().ToString();
  return *difference;
}

class CheckpointToolsTest : public ::testing::Test {
 protected:
  // A job with other parts and the same values.
  SampleJob Like(const SampleJob& job, int shards) {
    SampleJob other(job.model, job.plan.optimizer, shards, random_);
    other.variables = job.variables;
    other.FillShards();
    return other;
  }

  std::mt19937 random_{77};
  const test::TempDir dir_, other_;
};

TEST_F(CheckpointToolsTest, TheSameValuesInOtherPartsAreTheSame) {
  const SampleJob job(SampleModel({5, 4}), Optimizer("adam"), 3, random_);
  CommitAll(job, dir_.path());
  CommitAll(Like(job, 1), other_.path());
  const StoredDifference values =
      Difference(dir_.path(), other_.path() + "/model.ckpt-500", Compare::kValuesAlone);
  EXPECT_TRUE(values.Same()) << ToText(values);
  EXPECT_EQ(values.tensors.size(), ModelVariables(job.model).size());
  const StoredDifference all = Difference(dir_.path(), other_.path());
  EXPECT_FALSE(all.Same());
  EXPECT_EQ(all.tensors.size(), 3 * values.tensors.size());
  EXPECT_TRUE(std::ranges::all_of(all.tensors, &TensorDifference::Same)) << ToText(all);
  std::vector<std::string> words;
  for (const WordDifference& word : all.words) words.push_back(word.name);
  EXPECT_THAT(words,
              UnorderedElementsAre("cluster/ps", "progress/parts/1/optimizer_step",
                                   "progress/parts/1/version", "progress/parts/2/optimizer_step",
                                   "progress/parts/2/version"));
  EXPECT_TRUE(Difference(dir_.path(), dir_.path()).Same());
}

TEST_F(CheckpointToolsTest, OneFloatThatDiffersIsFoundAndMeasured) {
  SampleJob job(SampleModel(), Optimizer("momentum"), 2, random_);
  for (auto& [name, contents] : job.variables) {
    for (std::vector<float>& floats : contents) std::ranges::fill(floats, 0.5F);
  }
  job.FillShards();
  CommitAll(job, dir_.path());
  SampleJob other = Like(job, 3);
  other.variables.at("hid_w")[0][54] = 0.75F;  // the last of 55
  other.variables.at("sm_b")[1][0] = 0.25F;
  other.FillShards();
  CommitAll(other, other_.path());
  const StoredDifference all = Difference(dir_.path(), other_.path());
  for (const TensorDifference& t : all.tensors) {
    const bool differs = t.name == "hid_w" || t.name == "sm_b/Momentum";
    EXPECT_EQ(t.different, differs ? 1u : 0u) << t.name;
    EXPECT_EQ(t.most, differs ? 0.25 : 0.0) << t.name;
    if (t.name != "hid_w") continue;
    EXPECT_NEAR(t.relative, 0.25 / (0.5 * std::sqrt(55.0)), 1e-12);
  }
  EXPECT_THAT(ToText(all), HasSubstr("6 of 8 tensors are the same; "));
  EXPECT_FALSE(Difference(dir_.path(), other_.path(), Compare::kValuesAlone).Same());
  EXPECT_EQ(*ToJson(all).Find("same")->As<bool>(), false);
}

TEST_F(CheckpointToolsTest, ATensorIsComparedToItsEndHoweverLargeItIs) {
  const SampleJob job(SampleModel({100'000}), Optimizer("sgd"), 2, random_);
  CommitAll(job, dir_.path());
  SampleJob other = Like(job, 1);
  ASSERT_GT(other.variables.at("hid_w")[0].size(), kFloatsAtOnce);
  float& last = other.variables.at("hid_w")[0].back();
  last = std::bit_cast<float>(std::bit_cast<std::uint32_t>(last) ^ 1);
  other.FillShards();
  CommitAll(other, other_.path());
  for (const TensorDifference& t : Difference(dir_.path(), other_.path()).tensors) {
    EXPECT_EQ(t.different, t.name == "hid_w" ? 1u : 0u) << t.name;
  }
}

TEST_F(CheckpointToolsTest, AnotherModelOrOptimizerIsNoError) {
  CommitAll(SampleJob(SampleModel(), Optimizer("momentum"), 2, random_), dir_.path());
  CommitAll(SampleJob(SampleModel({7}), Optimizer("sgd"), 1, random_), other_.path());
  const std::string text = ToText(Difference(dir_.path(), other_.path()));
  EXPECT_THAT(text,
              AllOf(HasSubstr("11x5 / 11x7  other shapes"), HasSubstr("5 / -  only in the first"),
                    HasSubstr("hidden"), HasSubstr("\"momentum\"")));
}

TEST_F(CheckpointToolsTest, AnExportHasTheBitsOfAllParts) {
  const SampleJob job(SampleModel({7001}), Optimizer("adam"), 3, random_);  // several pieces
  CommitAll(job, dir_.path());
  const StoredTensors stored = Stored(dir_.path());
  const std::string file = other_.path() + "/values.safetensors";
  ASSERT_TRUE(CheckExportPath(file).ok());
  const Status exported = ExportValues(stored, file, Export::kSlotsToo);
  ASSERT_TRUE(exported.ok()) << exported.ToString();
  const Result<SavedModel> model = LoadModel(file);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const std::vector<VariableSpec> specs = ModelVariables(job.model);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    EXPECT_TRUE(SameBits(model->values[i], job.variables.at(specs[i].name)[0])) << specs[i].name;
  }
  EXPECT_EQ(model->metadata.at("global_step"), "500");
  EXPECT_FALSE(NamesCheckpoint(file)) << "nobody is to go on from it";
  EXPECT_TRUE(Difference(dir_.path(), file, Compare::kValuesAlone).Same());
  const auto tensors = TensorFile::Open(file);
  ASSERT_TRUE(tensors.ok());
  EXPECT_EQ(tensors->tensors().size(), 3 * specs.size());
  EXPECT_NE(tensors->Find("hid_w/Adam_1"), nullptr);

  const std::string npz = other_.path() + "/values.npz";
  ASSERT_TRUE(ExportValues(stored, npz, Export::kSlotsToo).ok());
  auto archive = ZipArchive::Open(npz);
  ASSERT_TRUE(archive.ok()) << archive.status().ToString();
  ASSERT_EQ(archive->entries().size(), 3 * specs.size());
  for (std::size_t i = 0; i < archive->entries().size(); ++i) {
    const StoredTensors::Tensor& tensor = stored.tensors()[i];
    EXPECT_EQ(archive->entries()[i].name, tensor.name + ".npy");
    auto member = archive->OpenMember(i);
    ASSERT_TRUE(member.ok());
    const auto header = ReadNpyHeader(**member, npz);
    ASSERT_TRUE(header.ok()) << header.status().ToString();
    EXPECT_EQ(header->descr, "<f4");
    EXPECT_EQ(header->header_bytes % 64, 0u);
    EXPECT_EQ(header->shape, std::vector<std::uint64_t>(tensor.shape.begin(), tensor.shape.end()));
    std::vector<float> floats(tensor.elements() + 1);
    auto rest = std::as_writable_bytes(std::span(floats));
    for (std::size_t got = 1; got > 0; rest = rest.subspan(got)) {
      const auto read = (*member)->Read(rest);  // says 0 once the checksum is right
      ASSERT_TRUE(read.ok()) << read.status().ToString();
      got = *read;
    }
    EXPECT_EQ(rest.size(), sizeof(float));
    floats.pop_back();
    EXPECT_TRUE(SameBits(
        floats,
        job.variables.at(specs[tensor.variable].name)[static_cast<std::size_t>(tensor.slot)]))
        << tensor.name;
  }
  const std::string first = test::FileText(npz);
  ASSERT_TRUE(ExportValues(stored, npz, Export::kSlotsToo).ok());
  EXPECT_EQ(test::FileText(npz), first);
}

TEST_F(CheckpointToolsTest, AnExportThatCannotBeHasASentence) {
  CommitAll(SampleJob(SampleModel(), Optimizer("sgd"), 1, random_), dir_.path());
  const StoredTensors stored = Stored(dir_.path());
  const auto error = [&](const std::string& name) {
    return CheckExportPath(other_.path() + "/" + name).message();
  };
  EXPECT_THAT(error("values.txt"), HasSubstr("ends with neither .safetensors nor .npz"));
  EXPECT_THAT(error("model.ckpt-7.safetensors"), HasSubstr("is the name of a checkpoint"));
  EXPECT_THAT(error("no/such.npz"), HasSubstr("cannot be written"));
  const std::string file = other_.path() + "/v.safetensors";
  ASSERT_TRUE(ExportValues(stored, file, Export::kValuesAlone).ok());
  const StoredTensors values = Stored(file);
  EXPECT_THAT(ExportValues(values, file, Export::kValuesAlone).message(),
              HasSubstr("both name " + file));
  EXPECT_THAT(ExportValues(values, other_.path() + "/w.npz", Export::kSlotsToo).message(),
              HasSubstr("has no slot variables"));
}

TEST_F(CheckpointToolsTest, AListingSaysWhyEachIsKeptAndWhatIsOfNone) {
  const SampleJob job(SampleModel(), Optimizer("sgd"), 2, random_);
  const std::string path = dir_.path();
  const auto save = [&](CheckpointFolder& folder, std::int64_t step, double now, bool best) {
    SampleJob later = Like(job, 2);
    later.progress.global_step = step;
    later.WriteAll(path);
    const Status done = folder.Commit(step, 2, now);
    ASSERT_TRUE(done.ok()) << done.ToString();
    if (!best) return;
    ASSERT_TRUE(folder.MarkBest(CheckpointName(step), {0.875, step}).ok());
  };
  auto folder = CheckpointFolder::Own(path, {.keep = 2, .keep_every_hours = 1}, 1000);
  ASSERT_TRUE(folder.ok());
  save(*folder, 90, 10'000, false);  // stays for good
  save(*folder, 100, 10'001, true);
  save(*folder, 1000, 10'002, false);
  save(*folder, 2000, 10'003, false);
  ASSERT_TRUE(job.Write(path, 1).ok());  // of 500, between the others: never committed
  SampleJob newer = Like(job, 2);
  newer.progress.global_step = 3000;
  newer.WriteAll(path);
  for (const char* const name : {"model.ckpt-80.safetensors.corrupt", "checkpoint.tmp.4711.0",
                                 "notes.txt", "events.out.tfevents.1.x"}) {
    test::PutFileText(path + "/" + name, "x");
  }
  const auto listing = ListCheckpoints(path);
  ASSERT_TRUE(listing.ok()) << listing.status().ToString();
  std::vector<std::string> kept, strays;
  for (const ListedCheckpoint& set : listing->checkpoints) {
    kept.push_back(set.name);
    for (const std::string& why : set.kept) kept.back() += " " + why;
    EXPECT_EQ(set.parts, 2) << set.name;
    EXPECT_GT(set.bytes, 0u) << set.name;
  }
  for (const StrayFile& file : listing->strays) strays.push_back(file.name + " " + file.why);
  EXPECT_THAT(kept, ElementsAre("model.ckpt-90 for good", "model.ckpt-100 best",
                                "model.ckpt-1000 recent", "model.ckpt-2000 newest"));
  EXPECT_THAT(strays, ElementsAre("checkpoint.tmp.4711.0 unfinished",
                                  "model.ckpt-3000-00000-of-00002.safetensors no index names it",
                                  "model.ckpt-3000-00001-of-00002.safetensors no index names it",
                                  "model.ckpt-500-00001-of-00002.safetensors unfinished: 1 of 2 "
                                  "parts",
                                  "model.ckpt-80.safetensors.corrupt found broken"));
  EXPECT_EQ(listing->checkpoints.back().saved_at, 10'003);
  EXPECT_THAT(ToText(*listing), HasSubstr("  best (validation accuracy 0.8750 at step 100)\n"));
  EXPECT_EQ(*ToJson(*listing)
                 .Find("checkpoints")
                 ->list()
                 ->at(1)
                 .Find("score")
                 ->Find("global_step")
                 ->As<int>(),
            100);
  std::filesystem::remove(PartPath(path, 2000, 1, 2));
  EXPECT_THAT(ToText(*ListCheckpoints(path)), HasSubstr("newest; its files are not there"));
}

TEST_F(CheckpointToolsTest, VerifyingNamesEveryBrokenFileAndItsTensor) {
  const SampleJob job(SampleModel(), Optimizer("momentum"), 3, random_);
  CommitAll(job, dir_.path());
  auto verified = VerifyCheckpoints(dir_.path());
  ASSERT_TRUE(verified.ok()) << verified.status().ToString();
  ASSERT_EQ(verified->size(), 1u);
  EXPECT_TRUE((*verified)[0].broken.empty());
  EXPECT_EQ((*verified)[0].files, 3u);
  std::uint64_t bytes = 0;
  for (int part = 0; part < 3; ++part) {
    bytes += std::filesystem::file_size(PartPath(dir_.path(), 500, part, 3));
  }
  EXPECT_EQ((*verified)[0].bytes, bytes);
  for (const int part : {0, 2}) {
    const std::string path = PartPath(dir_.path(), 500, part, 3);
    const auto file = TensorFile::Open(path);
    ASSERT_TRUE(file.ok());
    std::string text = test::FileText(path);
    text[file->tensors()[0].begin] ^= 1;
    test::PutFileText(path, text);
  }
  for (const std::string& name : {dir_.path(), dir_.path() + "/model.ckpt-500"}) {
    verified = VerifyCheckpoints(name);
    ASSERT_TRUE(verified.ok()) << verified.status().ToString();
    ASSERT_EQ((*verified)[0].broken.size(), 2u);
    EXPECT_THAT((*verified)[0].broken[0],
                AllOf(HasSubstr("-00000-of-00003.safetensors: tensor \""), HasSubstr("changed")));
    EXPECT_THAT((*verified)[0].broken[1], HasSubstr("-00002-of-00003.safetensors: tensor \""));
  }
  std::filesystem::remove(PartPath(dir_.path(), 500, 1, 3));
  verified = VerifyCheckpoints(dir_.path());
  ASSERT_TRUE(verified.ok());
  EXPECT_THAT((*verified)[0].broken, ElementsAre(HasSubstr("has 2 of its 3 parts")));
  EXPECT_FALSE((*verified)[0].gone);
  EXPECT_EQ(VerifyCheckpoints(other_.path()).status().code(), Code::kNotFound);
  EXPECT_EQ(VerifyCheckpoints(dir_.path() + "/model.ckpt-9").status().code(), Code::kNotFound);
}

TEST_F(CheckpointToolsTest, ADescriptionSumsUpEveryTensor) {
  SampleJob job(SampleModel(), Optimizer("sgd"), 2, random_);
  for (auto& [name, contents] : job.variables) std::ranges::fill(contents[0], 0.5F);
  job.variables.at("sm_b")[0] = {-3, 4, NAN};
  job.FillShards();
  CommitAll(job, dir_.path());
  const auto description = Describe(Stored(dir_.path()));
  ASSERT_TRUE(description.ok());
  const TensorSummary& t = description->tensors.back();
  EXPECT_EQ(t.name, "sm_b");
  EXPECT_EQ(std::tuple(t.least, t.mean, t.most, t.norm, t.not_finite),
            std::tuple(-3.0, 0.5, 4.0, 5.0, 1u));
  EXPECT_NEAR(description->tensors[0].norm, 0.5 * std::sqrt(55.0), 1e-9);
  EXPECT_THAT(ToText(*description),
              AllOf(HasSubstr("model.ckpt-500: "), HasSubstr(" bytes in 2 files"),
                    HasSubstr("--learning_rate=0.01"), HasSubstr("2 workers, 501 local steps"),
                    HasSubstr("  mixed_blocks     0\n"), HasSubstr("1 not finite")));
  EXPECT_EQ(*ToJson(*description).Find("words")->Find("data")->Find("hash")->text(), "abc");
}

}  // namespace
}  // namespace passel::job::testing

#include "train/checkpoint_set.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "io/checked_tensors.h"
#include "io/checkpoint_folder.h"
#include "job/checkpoint_verification.h"
#include "support/file_text.h"
#include "support/sanitized.h"
#include "support/temp_dir.h"
#include "train/saved_model.h"
#include "unit/job/checkpoint_sample.h"

namespace passel::job::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kName = "model.ckpt-500";

class CheckpointSetTest : public ::testing::Test {
 protected:
  Result<CheckpointSet> Open() const { return CheckpointSet::Open(dir_.path(), kName); }
  std::string OpenError(Code code = Code::kDataLoss) const {
    const auto set = Open();
    EXPECT_EQ(set.status().code(), code);
    return set.status().message();
  }
  std::string Part(int part, int parts) const { return PartPath(dir_.path(), 500, part, parts); }
  // Writes the only part again, as `change` wants it.
  void Rewrite(const std::function<void(std::vector<TensorView>&, SafetensorsMetadata&)>& change) {
    const std::string bytes = test::FileText(Part(0, 1));
    const auto file = ParseSafetensors(std::as_bytes(std::span(bytes)));
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    std::vector<TensorView> tensors = file->tensors;
    SafetensorsMetadata metadata = file->metadata;
    std::erase_if(metadata, [](const auto& word) { return word.first.starts_with("crc32"); });
    change(tensors, metadata);
    const Status written = WriteCheckedTensors(Part(0, 1), tensors, metadata);
    ASSERT_TRUE(written.ok()) << written.ToString();
  }

  std::mt19937 random_{15};
  const test::TempDir dir_;
};

TEST_F(CheckpointSetTest, AnyNumberOfPartsFillsAnyOtherNumberOfShards) {
  const std::vector<std::vector<std::size_t>> models = {{}, {5}, {6, 3, 9}};
  const char* const optimizers[] = {"sgd", "momentum", "adam", "ftrl"};
  for (int turn = 0; turn < 60; ++turn) {
    const std::size_t n = random_();
    const SampleJob job(SampleModel(models[n % 3]), Optimizer(optimizers[n / 3 % 4]),
                        1 + static_cast<int>(n / 12 % 4), random_);
    const test::TempDir dir;
    job.WriteAll(dir.path());
    const auto set = CheckpointSet::Open(dir.path(), kName);
    ASSERT_TRUE(set.ok()) << set.status().ToString();
    for (int shards = 1; shards <= 4; ++shards) {
      const VariableTable table = RandomTable(job.model, shards, random_);
      const Status fits = set->Check(table, OptimizerWordsOf(job.plan.optimizer));
      ASSERT_TRUE(fits.ok()) << fits.ToString();
      for (const VariableInfo& v : table.all()) {
        for (int k = 0; k <= NumSlots(job.plan.optimizer); ++k) {
          std::vector<float> floats(v.elements);
          const Status filled = set->Fill(v, k, floats);
          ASSERT_TRUE(filled.ok()) << filled.ToString();
          ASSERT_TRUE(SameBits(floats, job.PieceOf(v, static_cast<std::size_t>(k))))
              << v.name << " " << k << " in turn " << turn;
        }
      }
    }
  }
}

TEST_F(CheckpointSetTest, SaysWhatIsKnownOfTheJob) {
  SampleJob job(SampleModel(), Optimizer("adam"), 3, random_);
  job.progress.batches = {{1000, 30, 8}, 70, {66, 69}};
  job.WriteAll(dir_.path());
  const auto set = Open();
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  EXPECT_EQ(set->name(), dir_.path() + "/" + kName);
  EXPECT_EQ(set->global_step(), 500);
  EXPECT_EQ(set->words().model.hidden, std::vector<std::size_t>{5});
  EXPECT_EQ(set->words().mode, "locked");
  EXPECT_EQ(*set->words().settings.Find("learning_rate")->text(), "0.01");
  EXPECT_EQ(*set->words().data.Find("hash")->text(), "abc");
  EXPECT_EQ(set->words().ps, 3);
  EXPECT_EQ(set->words().workers, 2);
  EXPECT_FALSE(set->words().exact);
  EXPECT_EQ(set->optimizer(), (OptimizerWords{"adam", {"Adam", "Adam_1"}}));
  std::uint64_t blocks = 0;
  for (int s = 0; s < 3; ++s) blocks += job.plan.NumBlocks(s);
  EXPECT_EQ(set->mixed_blocks().blocks, blocks);
  EXPECT_EQ(set->mixed_blocks().mixed, 0u);
  const JobProgress& saved = set->saved();
  ASSERT_EQ(saved.workers.size(), 2u);
  EXPECT_EQ(saved.workers[1].clock, 41u);
  EXPECT_EQ(saved.workers[1].cursor_epochs, 4u);
  EXPECT_EQ(saved.workers[1].cursor_index, 71u);
  EXPECT_EQ(saved.workers[1].local_steps, 251u);
  EXPECT_EQ(saved.batches.rules, (BatchRules{1000, 30, 8}));
  EXPECT_EQ(saved.batches.next, 70u);
  EXPECT_EQ(saved.batches.open, (std::vector<std::uint64_t>{66, 69}));
  ASSERT_EQ(saved.shards.size(), 3u);
  EXPECT_EQ(saved.shards[2].version, 502u);
  EXPECT_EQ(saved.shards[2].optimizer_step, 497);
  const JobProgress on_five = set->ProgressOn(5);
  EXPECT_EQ(on_five.global_step, 500);
  EXPECT_EQ(on_five.workers.size(), 2u);
  ASSERT_EQ(on_five.shards.size(), 5u);
  for (const JobProgress::Shard& shard : on_five.shards) {
    EXPECT_EQ(shard.version, 500u);
    EXPECT_EQ(shard.optimizer_step, 499);
  }
}

TEST_F(CheckpointSetTest, RatesComeBackAsTheyWereAndOnlyWhereAnyWereSet) {
  SampleJob job(SampleModel(), Optimizer("adamw"), 3, random_);
  job.WriteAll(dir_.path());
  auto set = Open();
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  EXPECT_TRUE(set->saved().rates.empty());
  for (const TensorFile& part : set->parts()) EXPECT_EQ(part.Word("rates"), "");

  const std::vector<GroupRates> rates = {{0.1, 1.0 / 3}, {0, 5e-324}, {1e-7, 0}};
  job.progress.rates = rates;
  job.WriteAll(dir_.path());
  set = Open();
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  EXPECT_EQ(set->ProgressOn(5).rates, rates);
  EXPECT_EQ(set->parts()[1].Word("rates"), "") << "of part 0 alone";
  const OptimizerWords adamw = OptimizerWordsOf(job.plan.optimizer);
  EXPECT_EQ(set->Check(job.plan.variables, adamw).message(),
            set->name() + " has the rates of 3 groups of variables, the job has 1");
  std::vector<VariableInfo> variables(job.plan.variables.all().begin(),
                                      job.plan.variables.all().end());
  variables[0].group = 2;
  EXPECT_TRUE(set->Check(*VariableTable::Build(variables, 3), adamw).ok());
}

TEST_F(CheckpointSetTest, RatesThatAreNotUnderstoodAreBroken) {
  for (const char* text :
       {"", "[]", "{}", R"({"groups":[]})", R"({"groups":[{"learning_rate":1}]})",
        R"({"groups":[{"learning_rate":"1","weight_decay":0}]})"}) {
    const Result<std::vector<GroupRates>> rates = RatesFromWords({{"rates", text}});
    ASSERT_FALSE(rates.ok()) << text;
    EXPECT_EQ(rates.status().code(), Code::kDataLoss);
    EXPECT_THAT(rates.status().message(), HasSubstr("\"rates\", which is not understood"));
  }
}

TEST_F(CheckpointSetTest, AnotherModelIsNamedByItsTensors) {
  const SampleJob job(SampleModel({5, 4}), Optimizer("adam"), 2, random_);
  job.WriteAll(dir_.path());
  const auto set = Open();
  ASSERT_TRUE(set.ok());
  const OptimizerWords adam = OptimizerWordsOf(job.plan.optimizer);
  const auto error = [&](const std::vector<std::size_t>& hidden) {
    const Status status = set->Check(RandomTable(SampleModel(hidden), 2, random_), adam);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(error({5, 7}),
            set->name() +
                " is of another model: \"hid2_b\" is [4] there and [7] in the job, \"hid2_w\" is "
                "[5,4] there and [5,7] in the job, \"sm_w\" is [4,3] there and [7,3] in the job");
  EXPECT_THAT(error({5}), AllOf(HasSubstr("\"sm_w\" is [4,3] there and [5,3] in the job"),
                                HasSubstr("the job has no \"hid2_w\"")));
  EXPECT_THAT(error({5, 4, 3}), HasSubstr("it has no \"hid3_w\""));
  EXPECT_THAT(error({}), HasSubstr("and 4 more"));
  // A piece that is not there.
  VariableInfo v;
  v.name = v.logical = "w";
  v.shape = {11, 3};
  v.elements = 33;
  std::vector<float> floats(33);
  EXPECT_EQ(set->Fill(v, 0, floats).code(), Code::kNotFound);
  v.logical = "hid_w";
  EXPECT_THAT(set->Fill(v, 0, floats).message(),
              HasSubstr("\"hid_w\" of " + set->name() +
                        " has the shape [11,5], which has no rows "
                        "0 to 11 of shape [11,3]"));
  v.shape = {3, 5};
  v.first_row = 9;
  v.elements = 15;
  floats.resize(15);
  EXPECT_THAT(set->Fill(v, 0, floats).message(), HasSubstr("no rows 9 to 12"));
}

TEST_F(CheckpointSetTest, AnotherOptimizerIsNamed) {
  const SampleJob job(SampleModel(), Optimizer("rmsprop"), 1, random_);
  job.WriteAll(dir_.path());
  const auto set = Open();
  ASSERT_TRUE(set.ok());
  const Status other = set->Check(job.plan.variables, OptimizerWordsOf(Optimizer("momentum")));
  EXPECT_EQ(other.code(), Code::kInvalidArgument);
  EXPECT_EQ(other.message(),
            set->name() +
                " has the slot variables of rmsprop (RMSProp, RMSProp_1), the job needs those of "
                "momentum (Momentum)");
  OptimizerConfig centered = Optimizer("rmsprop");
  centered.centered = 1;  // whose second slot variable is something else
  EXPECT_FALSE(set->Check(job.plan.variables, OptimizerWordsOf(centered)).ok());
  EXPECT_FALSE(set->Check(job.plan.variables, OptimizerWordsOf(Optimizer("sgd"))).ok());
}

TEST_F(CheckpointSetTest, AFormatOfTheFutureIsLeftToANewerPassel) {
  const SampleJob job(SampleModel(), Optimizer("sgd"), 1, random_);
  job.WriteAll(dir_.path());
  Rewrite([](auto&, auto& words) { words["format"] = "passel-3"; });
  EXPECT_EQ(OpenError(Code::kInvalidArgument),
            dir_.path() +
                "/model.ckpt-500: the format \"passel-3\" is of a newer passel than this, "
                "which knows passel-2: use that one");
  const auto model = LoadModel(Part(0, 1));
  EXPECT_EQ(model.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(model.status().message(), HasSubstr("of a newer passel"));
  Rewrite([](auto&, auto& words) { words["format"] = "pt"; });
  EXPECT_THAT(OpenError(), HasSubstr("the format is \"pt\", not passel-2"));
}

// Who verifies all of a folder hears of the others.
TEST_F(CheckpointSetTest, OneOfAFormatOfTheFutureIsNotReadAndTheOthersAre) {
  auto folder = CheckpointFolder::Own(dir_.path(), {}, 1);
  ASSERT_TRUE(folder.ok()) << folder.status().ToString();
  SampleJob job(SampleModel(), Optimizer("momentum"), 1, random_);
  for (const std::int64_t step : {500, 600}) {
    job.progress.global_step = step;
    job.WriteAll(dir_.path());
    const Status done = folder->Commit(step, 1, static_cast<double>(step));
    ASSERT_TRUE(done.ok()) << done.ToString();
  }
  Rewrite([](auto&, auto& words) { words["format"] = "passel-3"; });  // of step 500
  const auto verified = VerifyCheckpoints(dir_.path());
  ASSERT_TRUE(verified.ok()) << verified.status().ToString();
  ASSERT_EQ(verified->size(), 2u);
  for (const VerifiedCheckpoint& one : *verified) {
    const bool is_newer = one.name.ends_with("model.ckpt-500");
    EXPECT_EQ(one.not_read.code(), is_newer ? Code::kInvalidArgument : Code::kOk);
    EXPECT_THAT(one.Text(), HasSubstr(is_newer ? ": not read" : ": whole, "));
  }
}

// All of these have the right checksums.
TEST_F(CheckpointSetTest, WhatContradictsItselfIsRefused) {
  const SampleJob job(SampleModel(), Optimizer("momentum"), 1, random_);
  const auto error = [&](auto change) {
    job.WriteAll(dir_.path());
    Rewrite(change);
    return OpenError();
  };
  const auto word = [&](const std::string& key, const std::string& value) {
    return error([&](auto&, auto& words) { words[key] = value; });
  };
  for (const char* key :
       {"mode", "optimizer", "slots", "settings", "data", "cluster", "exact", "inputs", "hidden"}) {
    EXPECT_THAT(error([&](auto&, auto& words) { words.erase(key); }),
                HasSubstr("the metadata have no \"" + std::string(key) + "\""));
  }
  EXPECT_THAT(word("cluster", "{\"ps\":1}"), HasSubstr("for \"cluster\", which is not understood"));
  EXPECT_THAT(word("cluster", "{\"ps\":1,\"workers\":3}"),
              HasSubstr("\"worker/clocks\" is I64 of shape [2], not I64 of shape [3]"));
  EXPECT_THAT(word("settings", "[]"), HasSubstr("for \"settings\""));
  EXPECT_THAT(word("settings", "{\"a\":1}"), HasSubstr("for \"settings\""));
  EXPECT_THAT(word("data", "{"), HasSubstr("for \"data\""));
  EXPECT_THAT(word("exact", "yes"), HasSubstr("for \"exact\""));
  EXPECT_THAT(word("slots", "Momentum,"), HasSubstr("for \"slots\""));
  EXPECT_THAT(word("slots", "Adam"), HasSubstr("there is no tensor \""));
  EXPECT_THAT(word("hidden", "6"), HasSubstr("hid_w"));
  EXPECT_THAT(word("hidden", "5,5"), HasSubstr("there is no tensor \"hid2_w\""));
  for (const char* blocks : {"", "2 of 1", "1 of", "of 1", "-1 of 1", "1 of 1 "}) {
    EXPECT_THAT(word("mixed_blocks", blocks), HasSubstr("for \"mixed_blocks\""));
  }
  const auto no_tensor = [&](const std::string& name) {
    return error([&](auto& tensors, auto&) {
      std::erase_if(tensors, [&](const TensorView& t) { return t.name == name; });
    });
  };
  for (const char* name : {"global_step", "worker/clocks", "worker/cursors", "worker/local_steps",
                           "ps/0/version", "ps/0/optimizer_step"}) {
    EXPECT_THAT(no_tensor(name), HasSubstr("there is no tensor \"" + std::string(name) + "\""));
  }
  for (const VariableInfo& v : job.plan.variables.all()) {
    EXPECT_THAT(no_tensor(v.name), HasSubstr(v.logical));
    EXPECT_THAT(no_tensor(v.name + "/Momentum"),
                HasSubstr("there is no tensor \"" + v.name + "/Momentum\""));
  }
  const std::int64_t number = -7;
  EXPECT_THAT(error([&](auto& tensors, auto&) {
                for (TensorView& t : tensors) {
                  if (t.name == "ps/0/version") t.data = std::as_bytes(std::span(&number, 1));
                }
              }),
              HasSubstr("\"ps/0/version\" has -7"));
  EXPECT_THAT(error([&](auto& tensors, auto&) {
                for (TensorView& t : tensors) {
                  if (t.name == "ps/0/version") t.dtype = DType::kF64;
                }
              }),
              HasSubstr("\"ps/0/version\" is F64"));
  // Of data that are shared: examples, size of a batch, order, next, and what is open.
  const std::vector<std::vector<std::int64_t>> shared = {
      {100, 10, 0}, {0, 10, 0, 5}, {100, 0, 0, 5}, {100, 10, 0, 5, 5}, {100, 10, -1, 5}};
  const char* const sentences[] = {"says of no data", "says of no data", "says of no data",
                                   "has batch 5 as open, and 5 is the next", "has -1"};
  for (std::size_t i = 0; i < shared.size(); ++i) {
    EXPECT_THAT(error([&](auto& tensors, auto&) {
                  tensors.push_back({"worker/batches",
                                     DType::kI64,
                                     {static_cast<std::int64_t>(shared[i].size())},
                                     std::as_bytes(std::span(shared[i]))});
                }),
                AllOf(HasSubstr("\"worker/batches\""), HasSubstr(sentences[i])));
  }
  const std::int64_t step = 499;
  EXPECT_THAT(error([&](auto& tensors, auto&) {
                for (TensorView& t : tensors) {
                  if (t.name == "global_step") t.data = std::as_bytes(std::span(&step, 1));
                }
              }),
              HasSubstr("the tensor \"global_step\" is 499, and the metadata say \"500\""));
}

TEST_F(CheckpointSetTest, RowsThatAreMissingOrThereTwiceAreNamed) {
  SampleJob job(SampleModel({}), Optimizer("sgd"), 1, random_);
  std::vector<VariableInfo> pieces(3);
  pieces[0].name = "w/part_0";
  pieces[0].shape = {4, 3};
  pieces[1].name = "w/part_1";
  pieces[1].shape = {7, 3};
  pieces[1].first_row = 4;
  pieces[0].logical = pieces[1].logical = "w";
  pieces[2].name = pieces[2].logical = "b";
  pieces[2].shape = {3};
  job.plan.variables = *VariableTable::Build(pieces, 1);
  job.contents = {{RandomFloats(job.plan.variables.ShardFloats(0), random_)}};
  const auto error = [&](const char* rows) {
    job.WriteAll(dir_.path());
    EXPECT_TRUE(Open().ok());
    Rewrite([&](auto&, auto& words) { words["rows/w/part_1"] = rows; });
    return OpenError();
  };
  for (const char* rows : {"3 11", "5 11"}) {
    EXPECT_THAT(error(rows), HasSubstr("the parts of \"w\" have not all of its 11 rows"));
  }
  for (const char* rows : {"4 12", "4", "4 11 ", "-4 11", "11 11", "x"}) {
    EXPECT_THAT(error(rows), HasSubstr("of the rows of \"w/part_1\", which has 11 in all"));
  }
}

// The slow suite takes the default model, of 318 KB.
TEST_F(CheckpointSetTest, AnyByteThatChangesAndAnyLengthThatIsCutIsRefusedWithASentence) {
  ModelConfig model = ManyTurns() ? SampleModel({100}) : SampleModel({});
  model.inputs = ManyTurns() ? 784 : 2;
  if (ManyTurns()) model.classes = 10;
  SampleJob job(model, Optimizer(ManyTurns() ? "sgd" : "momentum"), 1, random_);
  for (const std::int64_t step : {400, 500}) {
    job.progress.global_step = step;
    job.WriteAll(dir_.path());
    auto folder = CheckpointFolder::Own(dir_.path(), {}, 1000);
    ASSERT_TRUE(folder.ok() && folder->Commit(step, 1, 1000).ok());
  }
  const std::string path = Part(0, 1), whole = test::FileText(path);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const auto put = [&](std::string_view bytes, std::size_t at) {
    ASSERT_EQ(::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(bytes.size()));
  };
  std::size_t silent = 0, changes = 0;
  const std::size_t seldom = whole.size() / 100 + 1;  // for what reads much, or logs
  const auto refused = [&](const char* what, std::size_t at) {
    const auto set = Open();
    const std::string& message = set.status().message();
    silent +=
        message.empty() || !message.starts_with(path) || message.find(": ") == std::string::npos;
    EXPECT_FALSE(set.ok()) << what << at;
    if (!ManyTurns() || changes % seldom == 0) {
      EXPECT_FALSE(LoadModel(path).ok()) << what << at;
    }
    if (changes++ % seldom != 0) return;
    const auto former = CheckpointSet::OpenNewest(dir_.path());
    ASSERT_TRUE(former.ok()) << what << at << ": " << former.status().ToString();
    EXPECT_EQ(former->global_step(), 400) << what << at;
  };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const char flipped = static_cast<char>(whole[i] ^ (1 << i % 8));
    put({&flipped, 1}, i);
    refused("byte ", i);
    put({&whole[i], 1}, i);
  }
  const std::string zeros(4096, '\0');
  for (std::size_t page = 0; page < whole.size(); page += zeros.size()) {
    const std::size_t size = std::min(zeros.size(), whole.size() - page);
    put({zeros.data(), size}, page);
    refused("page at ", page);
    put({whole.data() + page, size}, page);
  }
  ASSERT_TRUE(Open().ok());
  for (std::size_t more = 1; more <= 64; ++more) {
    put("x", whole.size() + more - 1);
    refused("more bytes: ", more);
  }
  for (std::size_t size = whole.size(); size-- > 0;) {
    ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(size)), 0);
    refused("cut at ", size);
  }
  ::close(fd);
  EXPECT_EQ(silent, 0u);
}

class NewestTest : public CheckpointSetTest {
 protected:
  void Save(std::int64_t step, int shards) {
    SampleJob job(SampleModel(), Optimizer("adam"), shards, random_);
    job.progress.global_step = step;
    job.WriteAll(dir_.path());
    auto folder = CheckpointFolder::Own(dir_.path(), {}, 1000);
    ASSERT_TRUE(folder.ok()) << folder.status().ToString();
    const Status done = folder->Commit(step, shards, 1000);
    ASSERT_TRUE(done.ok()) << done.ToString();
    values_[step] = job.variables;
  }
  // The step of the values that LoadModel() gives; -1: an error.
  std::int64_t Loaded(const std::string& path) {
    const auto model = LoadModel(path);
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    if (!model.ok()) return -1;
    EXPECT_TRUE(model->IsOurs());
    const std::int64_t step = std::stoll(model->metadata.at("global_step"));
    const std::vector<VariableSpec> specs = ModelVariables(model->config);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      EXPECT_TRUE(SameBits(model->values[i], values_.at(step)[specs[i].name][0])) << specs[i].name;
    }
    return step;
  }
  std::string LoadError(const std::string& path, Code code) {
    const auto model = LoadModel(path);
    EXPECT_EQ(model.status().code(), code);
    return model.status().message();
  }
  std::map<std::int64_t, std::map<std::string, std::vector<std::vector<float>>>> values_;
};

TEST_F(NewestTest, AModelIsLoadedFromAFolderASetOrAFile) {
  Save(100, 1);
  Save(200, 3);
  EXPECT_EQ(Loaded(dir_.path()), 200);
  EXPECT_EQ(Loaded(dir_.path() + "/"), 200);
  EXPECT_EQ(Loaded(dir_.File("model.ckpt-100")), 100);
  EXPECT_EQ(Loaded(dir_.File("model.ckpt-200")), 200);
  EXPECT_EQ(Loaded(PartPath(dir_.path(), 100, 0, 1)), 100);
  std::filesystem::copy(PartPath(dir_.path(), 100, 0, 1), dir_.File("copy"));
  EXPECT_EQ(Loaded(dir_.File("copy")), 100);
  EXPECT_EQ(LoadError(PartPath(dir_.path(), 200, 1, 3), Code::kInvalidArgument),
            PartPath(dir_.path(), 200, 1, 3) + " is part 1 of 3 of a checkpoint: name all of it, " +
                dir_.path() + "/model.ckpt-200");
  EXPECT_THAT(LoadError(dir_.File("model.ckpt-300"), Code::kNotFound),
              HasSubstr("model.ckpt-300.safetensors is not there"));
  EXPECT_THAT(LoadError(dir_.File("model"), Code::kNotFound), HasSubstr(dir_.File("model")));
}

TEST_F(NewestTest, ABrokenOneIsPassedOverAndLeftWhereItIs) {
  Save(100, 1);
  Save(200, 2);
  Save(300, 2);
  std::filesystem::remove(PartPath(dir_.path(), 300, 1, 2));
  std::string bytes = test::FileText(PartPath(dir_.path(), 200, 1, 2));
  bytes.back() ^= 4;
  test::PutFileText(PartPath(dir_.path(), 200, 1, 2), bytes);
  const std::vector<std::string> before = dir_.List();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Loaded(dir_.path()), 100);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, AllOf(HasSubstr("model.ckpt-300 has 1 of its 2 parts; the checkpoint before it"),
                         HasSubstr("changed since it was written")));
  EXPECT_EQ(dir_.List(), before);
  EXPECT_THAT(LoadError(dir_.File("model.ckpt-200"), Code::kDataLoss),
              HasSubstr("changed since it was written"));
  std::filesystem::remove(PartPath(dir_.path(), 100, 0, 1));
  EXPECT_THAT(LoadError(dir_.path(), Code::kNotFound), HasSubstr("no checkpoint that is whole"));
}

// Saves as often as it can.
class UnsyncedOps : public FileOps {
 public:
  int SyncFile(int) override { return 0; }
  int SyncDir(const std::string&) override { return 0; }
};

// A job that keeps one checkpoint deletes the one that was found a moment ago.
TEST_F(NewestTest, AModelIsLoadedWhileItsJobSaves) {
  Save(1, 1);
  std::atomic<bool> stop{false};
  std::thread saver([&] {
    UnsyncedOps ops;
    SampleJob job(SampleModel(), Optimizer("sgd"), 1, random_);
    auto folder = CheckpointFolder::Own(dir_.path(), {.keep = 1}, 1000, ops);
    for (std::int64_t step = 2; !stop.load(); ++step) {
      job.progress.global_step = step;
      EXPECT_TRUE(job.Write(dir_.path(), 0, ops).ok());
      EXPECT_TRUE(folder->Commit(step, 1, 1000).ok());
    }
  });
  for (int turn = 0; turn < 300; ++turn) {
    const auto model = LoadModel(dir_.path());
    EXPECT_TRUE(model.ok()) << model.status().ToString();
  }
  stop = true;
  saver.join();
}

TEST_F(NewestTest, AFolderWithoutAnIndexHasNoCheckpoint) {
  EXPECT_EQ(LoadError(dir_.path(), Code::kNotFound),
            dir_.path() + " has no checkpoint: name a folder that has some");
  SampleJob(SampleModel(), Optimizer("sgd"), 1, random_).WriteAll(dir_.path());
  EXPECT_EQ(LoadError(dir_.path(), Code::kNotFound),
            dir_.path() + " has no checkpoint that an index names: name one, such as " +
                dir_.File("model.ckpt-500"));
  test::PutFileText(dir_.File("checkpoint"), "no index");
  EXPECT_THAT(LoadError(dir_.path(), Code::kDataLoss), HasSubstr(dir_.File("checkpoint")));
}

}  // namespace
}  // namespace passel::job::testing

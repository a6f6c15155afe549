// small_worker.h - a fixture in which a worker trains, in milliseconds.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "compute/cpu_backend.h"
#include "data/digits.h"
#include "store/open_store.h"
#include "support/temp_dir.h"
#include "train/worker_loop.h"

namespace passel::test {

// A store of one worker, a softmax model and a few digits.
class SmallWorkerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const TempDir dir;
    ASSERT_TRUE(WriteGeneratedDigits(dir.path(), 300, 50, 1).ok());
    Result<std::unique_ptr<OwnedDataset>> loaded = Load(dir.path());
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    data_ = std::move(*loaded);
    config_ = DefaultModelConfig(ModelKind::kSoftmax);
    config_.inputs = kDigitPixels;
    config_.classes = 10;
    options_.train_steps = 20;
    options_.batch_size = 10;
    options_.seed = 1;
  }

  static Result<std::unique_ptr<OwnedDataset>> Load(const std::string& dir) {
    PASSEL_ASSIGN_OR_RETURN(auto data, OwnedDataset::Load(dir));
    return std::make_unique<OwnedDataset>(std::move(data));
  }

  void Open(float learning_rate) {
    StorePlan plan;
    plan.optimizer.kind = OptimizerKind::kSgd;
    plan.optimizer.learning_rate = learning_rate;
    plan.variables = PlaceModel(config_, 1, {}).value();
    store_.reset();
    arena_ = InProcessArena::Create(plan).value();
    Reopen();
    ASSERT_TRUE(InitializeStore(config_, *layout_, *store_).ok());
  }
  void Reopen() {
    store_ = arena_->Open(0, {}).value();
    layout_.emplace(ModelLayout::Make(config_, store_->variables()).value());
  }
  Result<WorkerResult> Run(const WorkerCallbacks& callbacks = {}) {
    const auto backend = CreateCpuBackend().value();
    const auto model = Model::Create(config_, *backend, 100).value();
    PASSEL_ASSIGN_OR_RETURN(const DataSplit split, SplitValidation(**data_, validation_size_));
    return RunWorker(options_, callbacks, *model, *layout_, split, *store_);
  }

  std::unique_ptr<OwnedDataset> data_;
  ModelConfig config_;
  WorkerOptions options_;
  std::int64_t validation_size_ = 0;
  std::unique_ptr<InProcessArena> arena_;
  std::unique_ptr<ParameterStore> store_;
  std::optional<ModelLayout> layout_;
};

}  // namespace passel::test

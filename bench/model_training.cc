#include "bench/model_training.h"

#include <utility>

#include "base/random.h"
#include "compute/cpu_backend.h"
#include "optim/update_kernels.h"

namespace passel::bench {

Result<std::unique_ptr<ModelTraining>> ModelTraining::Create(const Dataset& data,
                                                             const ModelTrainingOptions& options) {
  auto made = std::unique_ptr<ModelTraining>(new ModelTraining());
  ModelConfig config = DefaultModelConfig(ModelKind::kMlp);
  config.hidden = options.hidden;
  config.inputs = data.train().image_pixels;
  config.classes = data.num_classes();
  config.loss = LossReduction::kMean;
  config.seed = 1;
  PASSEL_ASSIGN_OR_RETURN(made->optimizer_, ParseOptimizer(options.optimizer));
  CpuBackendOptions backend;
  backend.threads = options.threads;
  PASSEL_ASSIGN_OR_RETURN(made->backend_, CreateCpuBackend(backend));
  PASSEL_ASSIGN_OR_RETURN(made->model_, Model::Create(config, *made->backend_, options.max_batch));
  made->examples_ = {data.train().images.data(), data.train().labels.data(), data.train().size()};
  const std::vector<VariableSpec>& specs = made->model_->variables();
  std::size_t floats = 0;
  std::vector<std::size_t> at;
  for (const VariableSpec& v : specs) {
    at.push_back(floats);
    floats += (v.elements() + 15) / 16 * 16;
  }
  made->floats_ = floats;
  PASSEL_ASSIGN_OR_RETURN(made->memory_,
                          made->backend_->Allocate((2 + kMaxSlots) * floats * sizeof(float)));
  auto* base = static_cast<float*>(made->memory_.get());
  made->values_ = base;
  made->gradient_ = base + floats;
  for (std::size_t i = 0; i < kMaxSlots; ++i) made->slots_[i] = base + (2 + i) * floats;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    float* values = base + at[i];
    InitializeVariable(config, i, 0, {values, specs[i].elements()});
    made->params_.push_back({{values, 0, specs[i].rows()}});
    made->gradients_.push_back({{made->gradient_ + at[i], 0, specs[i].rows()}});
  }
  return made;
}

Status ModelTraining::Step(std::span<const std::uint32_t> indices) {
  PASSEL_RETURN_IF_ERROR(
      model_->LossAndGradient({examples_, indices}, params_, gradients_).status());
  Update();
  return {};
}

void ModelTraining::Update() {
  Apply(Prepare(optimizer_, ++step_), values_, slots_, gradient_, floats_);
}

Batches::Batches(std::size_t examples, std::size_t batch) : order_(examples), batch_(batch) {
  Random random(1);
  for (std::size_t i = 0; i < examples; ++i) order_[i] = static_cast<std::uint32_t>(i);
  for (std::size_t i = examples; i > 1; --i) std::swap(order_[i - 1], order_[random.Below(i)]);
}

std::span<const std::uint32_t> Batches::Next() {
  if (at_ + batch_ > order_.size()) at_ = 0;
  at_ += batch_;
  return {order_.data() + at_ - batch_, batch_};
}

}  // namespace passel::bench

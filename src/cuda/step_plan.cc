#include "cuda/step_plan.h"

#include <fmt/core.h>

#include <cstddef>
#include <string>
#include <utility>

#include "base/check.h"
#include "compute/device_arena.h"
#include "cuda/gemm_choice.h"
#include "cuda/layer_products.h"
#include "cuda/step_layout.h"

namespace passel::cuda {

// Appends the operations in the order in which one stream would best run them.
class StepPlanBuilder {
 public:
  StepPlanBuilder(const StepEngineOptions& options, const StepMemory& memory,
                  const StepHostMemory& host, StepKind kind)
      : options_(options),
        layers_(options.network.layers),
        batch_(options.batch_size),
        memory_(memory),
        host_(host),
        updates_(kind == StepKind::kUpdate) {
    PASSEL_CHECK(!updates_ || (CanUpdateInStep(options) && memory.rate_ != nullptr),
                 "steps that update were asked for");
  }

  Plan Build() {
    CopyIn();
    Gather();
    for (std::size_t l = 0; l < layers_.size(); ++l) Forward(l);
    Loss();
    if (updates_) OpenUpdate();
    for (std::size_t l = layers_.size(); l-- > 0;) {
      if (l > 0) BackwardInputs(l);  // first: it reads the weights that the other may add to
      BackwardWeights(l);
    }
    if (!updates_) CopyOut();
    Report();
    return std::move(plan_);
  }

 private:
  // A matrix of (rows, cols), its rows `ld` floats apart.
  struct Block {
    float* data;  // of weights: read only
    std::size_t rows, cols, ld;
    Bytes bytes() const { return {data, rows == 0 ? 0 : ((rows - 1) * ld + cols) * sizeof(float)}; }
  };
  Block Activation(std::size_t layer) const {
    const std::size_t cols =
        layer < layers_.size() ? layers_[layer].inputs : layers_.back().outputs;
    return {memory_.activations_[layer], batch_, cols, ActivationStride(cols)};
  }
  // Gradient of the activation: where the last one is, the loss leaves its own.
  Block Delta(std::size_t layer) const {
    Block block = Activation(layer);
    if (layer < layers_.size()) block.data = memory_.deltas_[layer];
    return block;
  }
  Block Weights(std::size_t layer) const {
    return {const_cast<float*>(memory_.variables_[2 * layer]), layers_[layer].inputs,
            layers_[layer].outputs, layers_[layer].outputs};
  }
  Bytes Bias(std::size_t layer) const {
    return {memory_.variables_[2 * layer + 1], layers_[layer].outputs * sizeof(float)};
  }
  bool Large(std::size_t layer) const { return LibraryComputes(options_, layer); }
  // c = op(a) op(b), by the library.
  LargeGemm LibraryProduct(const Block& a, bool transpose_a, const Block& b, bool transpose_b,
                           const Block& c) const {
    LargeGemm gemm{transpose_a, transpose_b, c.rows, c.cols, transpose_a ? a.rows : a.cols,
                   a.data,      a.ld,        b.data, b.ld,   c.data,
                   c.ld};
    gemm.math = options_.math;
    return gemm;
  }
  // The same by a kernel of our own.
  static GemmArguments OwnProduct(const Block& a, bool transpose_a, const Block& b,
                                  bool transpose_b, const Block& c) {
    return {Narrow(c.rows),
            Narrow(c.cols),
            Narrow(transpose_a ? a.rows : a.cols),
            MakeOperand(a.data, a.ld, transpose_a),
            MakeOperand(b.data, b.ld, transpose_b),
            c.data,
            c.ld};
  }
  // The values are there already, or one kernel away, and the gradient stays.
  bool resident() const { return options_.arena != nullptr; }
  float* ShardFloats(std::size_t shard) const {
    return resident() ? host_.device_gradients[shard] : memory_.gradients_[shard];
  }
  // As many floats from there on as the shard has.
  Bytes OfShard(std::size_t shard, const float* begin) const {
    return {begin, options_.memory.shard_values[shard].size() * sizeof(float)};
  }
  std::size_t shards() const { return options_.memory.shard_values.size(); }
  static std::uint32_t Narrow(std::size_t n) { return static_cast<std::uint32_t>(n); }
  Bytes NumberOnDevice() const { return {memory_.block_, sizeof(std::uint64_t)}; }
  Bytes RateOnDevice() const { return {memory_.block_ + offsetof(StepBlock, rate), sizeof(float)}; }
  Bytes Rate() const { return {memory_.rate_, sizeof(float)}; }
  // The counter of part `part` of a variable.
  std::uint32_t* NonFinite(std::size_t variable, std::size_t part) const {
    std::uint32_t* counter = memory_.nonfinite_ + part;
    for (std::size_t v = 0; v < variable; ++v) counter += options_.memory.variables[v].size();
    return counter;
  }

  void CopyIn() {
    const std::size_t size = StepBlockSize(batch_);
    plan_.Add("copy step block", Copy{Copy::Kind::kHostToDevice, memory_.block_, host_.block, size},
              {{host_.block, size}}, {{memory_.block_, size}});
    for (const StepMemory::ValueCopy& copy : memory_.value_copies_) {
      const float* from = (resident() ? options_.arena->values(copy.shard)
                                      : host_.values[static_cast<std::size_t>(copy.shard)]) +
                          copy.offset;
      const std::size_t bytes = copy.floats * sizeof(float);
      const bool fetched = resident() && options_.arena->remote();
      const auto kind = resident() ? Copy::Kind::kDeviceToDevice : Copy::Kind::kHostToDevice;
      plan_.Add(fmt::format("{} values of shard {}", fetched ? "fetch" : "copy", copy.shard),
                fetched ? Operation(AnyKernel(MakeFetch(copy.to, from, bytes)))
                        : Operation(Copy{kind, copy.to, from, bytes}),
                {{from, bytes}}, {{copy.to, bytes}});
    }
  }

  void Gather() {
    const Block out = Activation(0);
    const std::size_t rows = options_.train.rows;
    const auto* indices =
        reinterpret_cast<const std::uint32_t*>(memory_.block_ + sizeof(StepBlock));
    plan_.Add("gather",
              AnyKernel(MakeGather({memory_.pixels_, memory_.labels_, indices, Narrow(batch_),
                                    Narrow(out.cols), out.data, out.ld, memory_.batch_labels_})),
              {{memory_.pixels_, rows * out.cols},
               {memory_.labels_, rows},
               {indices, batch_ * sizeof(std::uint32_t)}},
              {out.bytes(), {memory_.batch_labels_, batch_}});
  }

  void Forward(std::size_t layer) {
    const Block x = Activation(layer), w = Weights(layer), y = Activation(layer + 1);
    const bool last = layer + 1 == layers_.size();
    const auto* bias = static_cast<const float*>(Bias(layer).begin);
    std::string name = fmt::format("forward {}", layer);
    std::vector<Bytes> reads{x.bytes(), w.bytes(), Bias(layer)};
    if (Large(layer)) {
      LargeGemm gemm = LibraryProduct(x, false, w, false, y);
      gemm.bias = bias;
      gemm.epilogue = last ? LargeGemm::Epilogue::kBias : LargeGemm::Epilogue::kBiasRelu;
      plan_.Add(std::move(name), gemm, std::move(reads), {y.bytes()});
      return;
    }
    GemmArguments gemm = OwnProduct(x, false, w, false, y);
    gemm.epilogue_input = bias;
    gemm.epilogue = last ? GemmEpilogue::kBias : GemmEpilogue::kBiasRelu;
    plan_.Add(std::move(name), ChooseGemm(gemm), std::move(reads), {y.bytes()});
  }

  void Loss() {
    const Block logits = Activation(layers_.size());
    CrossEntropyKernel kernel{logits.data,         logits.ld,      memory_.batch_labels_,
                              memory_.loss_parts_, Narrow(batch_), Narrow(logits.cols)};
    if (options_.network.clip) kernel.clip = kProbabilityClip;
    if (options_.network.mean) kernel.scale = 1.f / static_cast<float>(batch_);
    plan_.Add("cross-entropy", AnyKernel(kernel), {logits.bytes(), {memory_.batch_labels_, batch_}},
              {logits.bytes(), LossParts()});
  }
  Bytes LossParts() const {
    return {memory_.loss_parts_, memory_.loss_part_count_ * sizeof(LossPart)};
  }

  void OpenUpdate() {
    const UpdateGateKernel gate{memory_.loss_parts_, memory_.loss_part_count_,
                                static_cast<const float*>(RateOnDevice().begin), memory_.rate_};
    plan_.Add("open update", AnyKernel(gate), {LossParts(), RateOnDevice()}, {Rate()});
  }

  // dx = dy w', 0 where the ReLU behind x gave 0.
  void BackwardInputs(std::size_t layer) {
    const Block dy = Delta(layer + 1), w = Weights(layer), x = Activation(layer), dx = Delta(layer);
    std::string name = fmt::format("backward inputs {}", layer);
    if (Large(layer)) {
      plan_.Add(std::move(name), LibraryProduct(dy, false, w, true, dx), {dy.bytes(), w.bytes()},
                {dx.bytes()});
      plan_.Add(
          fmt::format("backward relu {}", layer),
          AnyKernel(ReluMaskKernel{x.data, x.ld, dx.data, dx.ld, Narrow(batch_), Narrow(dx.cols)}),
          {x.bytes(), dx.bytes()}, {dx.bytes()});
      return;
    }
    GemmArguments gemm = OwnProduct(dy, false, w, true, dx);
    gemm.epilogue_input = x.data;
    gemm.ld_mask = x.ld;
    gemm.epilogue = GemmEpilogue::kMask;
    plan_.Add(std::move(name), ChooseGemm(gemm), {dy.bytes(), w.bytes(), x.bytes()}, {dx.bytes()});
  }

  // dw = x' dy and db = column sums of dy, each part to its shard: to its gradient, or added to its
  // values. Where our own kernels compute both, a bias in one part is an extra row of the last part
  // of the weights. They count what is not finite, for the library's results others do.
  void BackwardWeights(std::size_t layer) {
    const Block x = Activation(layer), dy = Delta(layer + 1);
    const auto& parts = options_.memory.variables[2 * layer];
    const auto& bias_parts = options_.memory.variables[2 * layer + 1];
    bool sums_done = false;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const NetworkMemory::Part& part = parts[p];
      if (part.rows == 0) continue;
      const Block rows{x.data + part.first_row, batch_, part.rows, x.ld};
      const Block dw{Target(part), part.rows, dy.cols, dy.cols};
      std::string name = fmt::format("backward weights {}", layer);
      if (Large(layer)) {
        plan_.Add(std::move(name), LibraryProduct(rows, true, dy, false, dw),
                  {rows.bytes(), dy.bytes()}, {dw.bytes()});
        Check(fmt::format("check weights {}", layer), 2 * layer, p, dw.bytes());
        continue;
      }
      GemmArguments gemm = OwnProduct(rows, true, dy, false, dw);
      std::vector<Bytes> reads{rows.bytes(), dy.bytes()}, writes;
      gemm.nonfinite = NonFinite(2 * layer, p);
      WriteOrUpdate(gemm.nonfinite, dw.bytes(), &reads, &writes);
      if (p + 1 == parts.size() && bias_parts.size() == 1) {
        sums_done = true;
        gemm.sums = Target(bias_parts[0]);
        gemm.sums_nonfinite = NonFinite(2 * layer + 1, 0);
        WriteOrUpdate(gemm.sums_nonfinite, {gemm.sums, dy.cols * sizeof(float)}, &reads, &writes);
      }
      AddWeightProduct(std::move(name), gemm, std::move(reads), std::move(writes));
    }
    for (std::size_t p = 0; p < bias_parts.size() && !sums_done; ++p) {
      const NetworkMemory::Part& part = bias_parts[p];
      if (part.rows == 0) continue;
      const Block cols{dy.data + part.first_row, batch_, part.rows, dy.ld};
      GemmArguments gemm =  // without rows: sums alone
          OwnProduct({nullptr, batch_, 0, 0}, true, cols, false, {nullptr, 0, part.rows, 0});
      gemm.sums = Target(part);
      gemm.sums_nonfinite = NonFinite(2 * layer + 1, p);
      std::vector<Bytes> reads{cols.bytes()}, writes;
      WriteOrUpdate(gemm.sums_nonfinite, {gemm.sums, part.rows * sizeof(float)}, &reads, &writes);
      AddWeightProduct(fmt::format("backward bias {}", layer), gemm, std::move(reads),
                       std::move(writes));
    }
  }
  // What a product does to `target` and its counter.
  void WriteOrUpdate(const std::uint32_t* nonfinite, Bytes target, std::vector<Bytes>* reads,
                     std::vector<Bytes>* writes) const {
    const Bytes counter{nonfinite, sizeof *nonfinite};
    writes->push_back(target);
    for (auto* ranges : {reads, writes}) ranges->push_back(counter);
    if (!updates_) return;
    for (const Bytes& bytes : {target, Rate()}) reads->push_back(bytes);
  }
  void AddWeightProduct(std::string name, GemmArguments gemm, std::vector<Bytes> reads,
                        std::vector<Bytes> writes) {
    if (updates_) {
      gemm.update = {memory_.rate_, QuadsAllowed(gemm.c, gemm.ldc), QuadsAllowed(gemm.sums, 0)};
    }
    plan_.Add(std::move(name), ChooseGemm(gemm), std::move(reads), std::move(writes));
  }
  float* Target(const NetworkMemory::Part& part) const {
    float* const shard = updates_ ? options_.arena->values(part.shard)
                                  : ShardFloats(static_cast<std::size_t>(part.shard));
    return shard + part.offset;
  }

  // Counts what is not finite in a part of the gradient that the library has written.
  void Check(std::string name, std::size_t variable, std::size_t part, Bytes gradient) {
    std::uint32_t* const counter = NonFinite(variable, part);
    const Bytes counted{counter, sizeof *counter};
    plan_.Add(std::move(name),
              AnyKernel(MakeNonFinite(static_cast<const float*>(gradient.begin),
                                      gradient.size / sizeof(float), counter)),
              {gradient, counted}, {counted});
  }

  void CopyOut() {
    if (resident()) return;
    for (std::size_t s = 0; s < shards(); ++s) {
      const Bytes from = OfShard(s, ShardFloats(s)), to = OfShard(s, host_.gradients[s]);
      if (from.size == 0) continue;
      plan_.Add(fmt::format("copy gradient of shard {}", s),
                Copy{Copy::Kind::kDeviceToHost, host_.gradients[s], from.begin, from.size}, {from},
                {to});
    }
  }

  // Reads the gradients where they are to be, in a way, or the values: they are there before the
  // sign is given.
  void Report() {
    const ReportKernel kernel{memory_.loss_parts_,
                              memory_.loss_part_count_,
                              memory_.nonfinite_,
                              memory_.nonfinite_count_,
                              reinterpret_cast<const std::uint64_t*>(memory_.block_),
                              host_.line};
    const Bytes counters{memory_.nonfinite_, memory_.nonfinite_count_ * sizeof(std::uint32_t)};
    std::vector<Bytes> reads{LossParts(), counters, NumberOnDevice()};
    for (std::size_t s = 0; s < shards(); ++s) {
      reads.push_back(OfShard(s, updates_     ? options_.arena->values(static_cast<int>(s))
                                 : resident() ? ShardFloats(s)
                                              : host_.gradients[s]));
    }
    plan_.Add("report", AnyKernel(kernel), std::move(reads),
              {counters, {host_.line, sizeof(StepReportLine)}});
  }

  const StepEngineOptions& options_;
  const std::vector<NetworkShape::Layer>& layers_;
  const std::size_t batch_;
  const StepMemory& memory_;
  const StepHostMemory& host_;
  const bool updates_;
  Plan plan_;
};

Plan BuildStepPlan(const StepEngineOptions& options, const StepMemory& memory,
                   const StepHostMemory& host) {
  return StepPlanBuilder(options, memory, host, StepKind::kGradient).Build();
}

Plan BuildUpdatePlan(const StepEngineOptions& options, const StepMemory& memory,
                     const StepHostMemory& host) {
  return StepPlanBuilder(options, memory, host, StepKind::kUpdate).Build();
}

}  // namespace passel::cuda

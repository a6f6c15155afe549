// checkpoint_sample.h - a small job in one place, its checkpoints, and what must come back.

#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "job/checkpoint_part.h"
#include "nn/model_config.h"
#include "optim/optimizer.h"
#include "store/store_plan.h"
#include "train/checkpoint_words.h"

namespace passel::job::testing {

inline ModelConfig SampleModel(std::vector<std::size_t> hidden = {5}) {
  ModelConfig model = DefaultModelConfig(hidden.empty() ? ModelKind::kSoftmax : ModelKind::kMlp);
  model.inputs = 11;
  model.classes = 3;
  model.hidden = std::move(hidden);
  return model;
}

/// Every variable of the model in one to four parts, each on some shard.
inline VariableTable RandomTable(const ModelConfig& model, int shards, std::mt19937& random) {
  const auto upto = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  std::vector<VariableInfo> variables;
  for (const VariableSpec& spec : ModelVariables(model)) {
    const bool partitioned = upto(3) != 0;
    std::int64_t first = 0;
    for (int part = 0; first < spec.shape[0]; ++part) {
      const std::int64_t left = spec.shape[0] - first;
      VariableInfo v;
      v.logical = spec.name;
      v.name = partitioned ? spec.name + "/part_" + std::to_string(part) : spec.name;
      v.shape = spec.shape;
      v.shape[0] = partitioned && part < 3 ? 1 + upto(left) : left;
      v.first_row = first;
      v.shard = static_cast<int>(upto(shards));
      first += v.shape[0];
      variables.push_back(std::move(v));
    }
  }
  return *VariableTable::Build(std::move(variables), shards);
}

/// Any bits that a float may have, NaN and -0 among them.
inline std::vector<float> RandomFloats(std::size_t count, std::mt19937& random) {
  std::vector<float> floats(count);
  for (float& f : floats) f = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  return floats;
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
         });
}

class SampleJob {
 public:
  SampleJob(ModelConfig of, OptimizerConfig optimizer, int shards, std::mt19937& random)
      : model(std::move(of)) {
    plan.optimizer = optimizer;
    plan.num_workers = 2;
    plan.block_floats = 16;
    plan.variables = RandomTable(model, shards, random);
    progress.global_step = 500;
    for (std::uint64_t k = 0; k < 2; ++k) {
      JobProgress::Worker& worker = progress.workers.emplace_back();
      worker = {40 + k, 3 + k, 70 + k, 250 + k};
    }
    for (const VariableSpec& spec : ModelVariables(model)) {
      auto& of_variable = variables[spec.name];
      for (int k = 0; k <= NumSlots(optimizer); ++k) {
        of_variable.push_back(RandomFloats(spec.elements(), random));
      }
    }
    for (int s = 0; s < shards; ++s) {
      progress.shards.push_back({500 + static_cast<Version>(s), 499 - s});
    }
    FillShards();
  }

  /// After a change of `variables`.
  void FillShards() {
    contents.clear();
    for (int s = 0; s < plan.variables.shards(); ++s) {
      auto& shard = contents.emplace_back();
      for (int k = 0; k <= NumSlots(plan.optimizer); ++k) {
        shard.push_back(std::vector<float>(plan.variables.ShardFloats(s), 1e30F));  // padding
      }
    }
    for (const VariableInfo& v : plan.variables.all()) {
      for (std::size_t k = 0; k < contents[0].size(); ++k) {
        const std::vector<float> piece = PieceOf(v, k);
        std::copy(piece.begin(), piece.end(),
                  contents[static_cast<std::size_t>(v.shard)][k].begin() +
                      static_cast<std::ptrdiff_t>(v.offset));
      }
    }
  }

  /// What a piece of any table of this model holds.
  std::vector<float> PieceOf(const VariableInfo& v, std::size_t k) const {
    const std::vector<float>& whole = variables.at(v.logical)[k];
    const std::size_t columns = v.elements / static_cast<std::size_t>(v.shape[0]);
    const auto begin = whole.begin() +
                       static_cast<std::ptrdiff_t>(static_cast<std::size_t>(v.first_row) * columns);
    return {begin, begin + static_cast<std::ptrdiff_t>(v.elements)};
  }

  PartOrder Order(const std::string& folder, int part) const {
    CheckpointWords words;
    words.model = model;
    words.mode = "locked";
    words.settings["learning_rate"] = "0.01";
    words.data["hash"] = "abc";
    words.ps = plan.variables.shards();
    words.workers = 2;
    PartOrder order{folder, progress.global_step, "word of this save", part, words.ps, {}};
    AddWords(words, &order.metadata);
    return order;
  }

  CopySource Source(int part) const {
    const auto& shard = contents[static_cast<std::size_t>(part)];
    std::vector<const float*> floats;
    for (const auto& k : shard) floats.push_back(k.data());
    return CopySource(std::move(floats), shard[0].size(), plan.block_floats);
  }

  Result<PartWritten> Write(const std::string& folder, int part,
                            FileOps& ops = FileOps::Real()) const {
    CopySource source = Source(part);
    return WritePart(Order(folder, part), plan, progress, source, ops);
  }
  void WriteAll(const std::string& folder) const {
    for (int part = 0; part < plan.variables.shards(); ++part) {
      const auto written = Write(folder, part);
      ASSERT_TRUE(written.ok()) << written.status().ToString();
    }
  }

  const ModelConfig model;
  StorePlan plan;
  JobProgress progress;
  std::map<std::string, std::vector<std::vector<float>>> variables;  // [k]: whole
  std::vector<std::vector<std::vector<float>>> contents;             // [shard][k], with padding
};

inline OptimizerConfig Optimizer(const char* name) { return *ParseOptimizer(name); }

}  // namespace passel::job::testing

// reference_model.h - a whole table of variables, updated by the reference loops alone.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "conformance/reference_update.h"
#include "store/variable_table.h"

namespace passel::testing {

/// All variables of a table under TestInitialValue() and TestGradient().
class ReferenceModel {
 public:
  ReferenceModel(const VariableTable& table, const OptimizerConfig& optimizer) {
    std::uint64_t element = 0;
    for (const VariableInfo& v : table.all()) {
      first_.push_back(element);
      std::vector<float> values(v.elements);
      for (float& x : values) x = TestInitialValue(element++);
      variables_.emplace_back(optimizer, std::move(values));
    }
  }
  /// Update `t` with several gradients per worker (and their number), each worker's added up first:
  /// gradient i of worker k is that of TestGradient(k + 100 * i).
  void StepOfSets(std::int64_t t, std::uint64_t step,
                  const std::vector<std::pair<int, int>>& workers) {
    for (std::size_t id = 0; id < variables_.size(); ++id) {
      std::vector<std::vector<float>> sums;
      int weight = 0;
      for (const auto& [worker, quota] : workers) {
        auto& sum = sums.emplace_back(variables_[id].values().size());
        for (std::size_t e = 0; e < sum.size(); ++e) {
          sum[e] = TestGradient(worker, step, first_[id] + e);
          for (int i = 1; i < quota; ++i) {
            sum[e] = sum[e] + TestGradient(worker + 100 * i, step, first_[id] + e);
          }
        }
        weight += quota;
      }
      variables_[id].Step(t, sums, weight);
    }
  }
  /// Of each group of the table's variables, from the next update on.
  void SetRates(const VariableTable& table, const std::vector<GroupRates>& rates) {
    for (VarId id = 0; id < table.size(); ++id) {
      variables_[id].SetRates(rates[static_cast<std::size_t>(table[id].group)]);
    }
  }
  /// Update `t` with the gradients of step `step` of these workers, in this order.
  void Step(std::int64_t t, std::uint64_t step, const std::vector<int>& workers) {
    for (std::size_t id = 0; id < variables_.size(); ++id) {
      std::vector<std::vector<float>> gradients;
      for (const int worker : workers) {
        auto& g = gradients.emplace_back(variables_[id].values().size());
        for (std::size_t i = 0; i < g.size(); ++i) {
          g[i] = TestGradient(worker, step, first_[id] + i);
        }
      }
      variables_[id].Step(t, gradients);
    }
  }
  const std::vector<float>& values(VarId id) const { return variables_[id].values(); }
  const std::vector<float>& slot(VarId id, std::size_t k) const { return variables_[id].slot(k); }

 private:
  std::vector<ReferenceVariable> variables_;
  std::vector<std::uint64_t> first_;
};

}  // namespace passel::testing

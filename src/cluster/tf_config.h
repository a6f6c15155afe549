// tf_config.h - reads the variable TF_CONFIG, in which job operators tell a task its cluster.
//
//   {"cluster": {"ps": ["h0:2222"], "worker": ["h1:2222", "h2:2222"]},
//    "task": {"type": "worker", "index": 0}, "environment": "cloud"}
//
// The tasks of a job are a list, or an object from indices to addresses: {"worker": {"1": "h2:2"}}.
// With dynamic workers the Kubeflow operator writes "sparseCluster" instead of "cluster": a ps then
// sees only itself, a worker all ps tasks and itself. One that has every index from 0 and both jobs
// is taken for the whole cluster; tasks compare its hash when they meet.
//
// Read strictly: a duplicate key, a wrong type, an unknown job or an index out of range is an
// error. null means the same as absent, except in place of an address. Unknown keys beside the
// known ones (some platforms add "job" or "trial") are listed and otherwise ignored.
//
// Where TensorFlow has an error text, the message begins with exactly that text.
//
// Thread safety: no state.

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cluster/cluster_spec.h"

namespace passel {

struct TfConfig {
  ClusterSpec cluster;  ///< no jobs if TF_CONFIG names no cluster
  /// `cluster` is what one task sees of a larger cluster: its indices have gaps, or a sparseCluster
  /// has no ps or no worker. Its hash is then not the same in every task.
  bool partial = false;
  bool sparse_cluster = false;  ///< it was named "sparseCluster"
  std::string task_type;        ///< "" if absent; else ps, worker, chief, master or evaluator
  std::optional<int> task_index;
  std::string environment, rpc_layer, session_master;  ///< "" if absent
  std::vector<std::string> unknown_keys;               ///< such as "job", "task.trial"
};

inline constexpr std::size_t kMaxTfConfigBytes = 1 << 20;

/// Reads the value of TF_CONFIG; nothing but white space is the same as "{}".
/// If both are there, the task is in the cluster; an evaluator need not be.
/// Errors: kInvalidArgument; kResourceExhausted above kMaxTfConfigBytes.
Result<TfConfig> ParseTfConfig(std::string_view text);

}  // namespace passel

// resolve_internal.h - for resolve.cc and resolve_sources.cc alone: what every source says about
// the cluster and the task, by precedence.

#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cluster/config_file.h"
#include "cluster/ranks.h"
#include "cluster/resolve.h"
#include "cluster/tf_config.h"

namespace passel {

/// The settings that several sources can make.
enum Key { kJobName, kTaskIndex, kPsHosts, kWorkerHosts, kKeys };
inline constexpr std::array<const char*, kKeys> kKeyNames{"job_name", "task_index", "ps_hosts",
                                                          "worker_hosts"};

/// `value` of a source, as one of several for the same setting.
struct Candidate {
  Source source;
  std::string origin;  ///< as in Setting
  std::string value;
};

struct Sources {
  TfConfig tf_config;
  std::string section;  ///< where TF_CONFIG's cluster stands
  ConfigFile file;
  std::array<std::vector<Candidate>, kKeys> candidates;  ///< by precedence, the default last
  std::vector<std::string> warnings;
  std::optional<Ranks> ranks;  ///< if nobody else named a cluster

  bool TfCluster() const { return !tf_config.cluster.jobs().empty(); }
  /// "file train.yaml:3"
  std::string FileOrigin(const FileValue& value) const;
};

/// Errors: those of ParseTfConfig() and ParseConfigFile().
Result<Sources> ReadSources(const ResolveInputs& inputs);

/// "h:1,h:2", or "0=h:1,5=h:2" if the indices have a gap.
std::string HostsText(const ClusterSpec& spec, std::string_view job);

}  // namespace passel

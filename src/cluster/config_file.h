// config_file.h - reads the file of --config: values of flags, and the cluster, in YAML or JSON.
//
//   batch_size: 100               # any flag by its name
//   hidden_units: [256, 128]
//   cluster:                      # or: ps_hosts: ..., worker_hosts: ...
//     ps: [localhost:2222]
//     worker: [localhost:2223, "[::1]:2224"]
//   task: {type: worker, index: 0}
//
// JSON is read as what it nearly is, a YAML document of one flow mapping. Of YAML only what such a
// file needs is accepted: anchors, aliases, merge keys, tags and a second document are errors, so
// that a short file stays short in memory. A scalar is judged by the type of its flag and by
// nothing else: `data_dir: no` is the folder "no".
//
// Errors name the place as "file:line:column: ", both counted from 1; columns in characters.
//
// Thread safety: no state.

#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace passel {

enum class FlagType {
  kText,
  kBool,     ///< true or false
  kInteger,  ///< decimal, from -2^63 to 2^64 - 1
  kNumber,   ///< decimal, finite
  kList,     ///< one scalar, or a list of scalars that are then joined by commas
};

/// A name that the file may use, without dashes.
struct FileFlag {
  std::string name;
  FlagType type = FlagType::kText;
};

/// A value as it would stand on the command line, and where it begins.
struct FileValue {
  std::string text;
  int line = 0;
  int column = 0;
};

struct ConfigFile {
  std::string path;
  /// By flag name. The cluster section fills ps_hosts and worker_hosts, the task section job_name
  /// and task_index.
  std::map<std::string, FileValue, std::less<>> values;
  /// Address of the cluster section's chief, master or evaluator, by job.
  std::map<std::string, FileValue, std::less<>> single_tasks;
};

inline constexpr std::size_t kMaxConfigFileBytes = 1 << 20;

/// The text of a regular file. Errors: kNotFound; kResourceExhausted above kMaxConfigFileBytes.
Result<std::string> ReadConfigFile(const std::string& path);

/// `path` is only for messages. The flags job_name, task_index, ps_hosts and worker_hosts are
/// always known. An empty document gives no values. Addresses are checked, their use is not.
/// Errors: kInvalidArgument; kResourceExhausted above kMaxConfigFileBytes.
Result<ConfigFile> ParseConfigFile(std::string_view path, std::string_view text,
                                   std::span<const FileFlag> known);

}  // namespace passel

// task_facts.h - what two tasks on different hosts tell each other once both have proved the token,
// and the one table of what may differ between them.
//
// Thread safety: values.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "cluster/handshake.h"

namespace passel::fabric {

/// What a connection is for.
enum class Purpose {
  kControl,
  kPipe,
  kErrand,  ///< a pipe for questions about the job as a whole
};

struct TaskFacts {
  std::string job_id;
  Role role = Role::kWorker;
  int index = 0;
  Purpose purpose = Purpose::kControl;
  std::uint64_t life = 0;  ///< of the control connection, once the server has given it

  // Hashes are 0 where they are not known.
  int wire = 0;               ///< version of fabric/wire.h
  std::uint64_t cluster = 0;  ///< ClusterSpec::Hash()
  std::uint64_t plan = 0;     ///< StorePlan::Hash()
  std::uint64_t data = 0;     ///< of the training data
  std::string provider;       ///< of the data plane; "" is this connection's own
  int lease_ms = 0;           ///< after which silence is its end; the shorter one counts
  std::string build;          ///< version of passel, for people
  std::string processor;      ///< instruction set, for people

  std::vector<std::uint8_t> address;  ///< of the data plane, as the provider has it
  std::vector<std::uint64_t> tags;    ///< for bulk messages, random

  /// "worker/1".
  std::string Name() const;
  std::chrono::nanoseconds lease() const { return std::chrono::milliseconds(lease_ms); }
};

inline constexpr int kMaxIndex = 99'999;
inline constexpr std::size_t kMaxJobId = 48, kMaxAddressBytes = 512, kMaxTags = 64;

/// How a fact of one task goes with that of the other.
enum class Rule {
  kSame,         ///< or the connection is refused
  kSameIfKnown,  ///< the same, where both know it
  kMayDiffer,
};
struct FactRule {
  std::string_view name;  ///< as messages call it
  Rule rule;
  bool of_tasks;  ///< who asks as Role::kControl is no task, and does not know it
  std::string (*show)(const TaskFacts& facts);  ///< "" is not known
  std::string_view fix;                         ///< what to do
};
/// The table.
const std::vector<FactRule>& FactRules();

/// Errors: kFailedPrecondition, with the first fact that does not fit and both values.
Status CheckFacts(const TaskFacts& mine, const TaskFacts& theirs);
/// Facts that may differ and do, in one clause; "" if there are none.
std::string Differences(const TaskFacts& mine, const TaskFacts& theirs);

Json FactsJson(const TaskFacts& facts);
/// Errors: kDataLoss. A newer build may say more.
Result<TaskFacts> FactsFromJson(const Json& json);

}  // namespace passel::fabric

#include "fabric/control/task_facts.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "base/json_fields.h"
#include "cluster/json_message.h"

namespace passel::fabric {
namespace {

std::string Hash(std::uint64_t hash) { return hash == 0 ? "" : fmt::format("{:016x}", hash); }

std::string_view PurposeName(Purpose purpose) {
  return purpose == Purpose::kControl ? "control" : purpose == Purpose::kPipe ? "pipe" : "errand";
}
std::optional<Purpose> ParsePurpose(std::string_view name) {
  for (const Purpose purpose : {Purpose::kControl, Purpose::kPipe, Purpose::kErrand}) {
    if (name == PurposeName(purpose)) return purpose;
  }
  return std::nullopt;
}

std::string HexOf(const std::vector<std::uint8_t>& bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}
std::optional<std::vector<std::uint8_t>> BytesOf(std::string_view hex) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (hex.size() % 2 != 0 || hex.size() > 2 * kMaxAddressBytes ||
      hex.find_first_not_of(kDigits) != std::string_view::npos) {
    return std::nullopt;
  }
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(
        static_cast<std::uint8_t>(kDigits.find(hex[i]) << 4 | kDigits.find(hex[i + 1])));
  }
  return bytes;
}

}  // namespace

void JsonMembers(auto& members, JsonPart<TaskFacts> auto& facts) {
  members("job", facts.job_id, kMaxJobId);
  members.Named("role", facts.role, RoleName, ParseRole);
  members("index", facts.index, kMaxIndex);
  members.Named("purpose", facts.purpose, PurposeName, ParsePurpose);
  members.OrDefault("life", facts.life);
  members.OrDefault("wire", facts.wire, 65'535);
  members.OrDefault("cluster", facts.cluster);
  members.OrDefault("plan", facts.plan);
  members.OrDefault("data", facts.data);
  members.OrDefault("provider", facts.provider, 64);
  members.OrDefault("lease_ms", facts.lease_ms, 3'600'000);
  members.OrDefault("build", facts.build, 64);
  members.OrDefault("processor", facts.processor, 64);
  members.Named("address", facts.address, HexOf, BytesOf);
  members.OrDefault("tags", facts.tags, kMaxTags);
  if constexpr (kReadsJson<decltype(members)>) members.MayHaveOthers();
}

std::string TaskFacts::Name() const { return fmt::format("{}/{}", RoleName(role), index); }

const std::vector<FactRule>& FactRules() {
  using enum Rule;
  using Facts = TaskFacts;
  static const std::vector<FactRule> kRules = {
      {"job id", kSame, false, [](const Facts& f) { return f.job_id; },
       "give all tasks one --job_id"},
      {"wire version", kSame, false, [](const Facts& f) { return std::to_string(f.wire); },
       "start all tasks from the same build"},
      {"cluster hash", kSame, true, [](const Facts& f) { return Hash(f.cluster); },
       "give all tasks the same --ps_hosts and --worker_hosts"},
      {"hash of the variables", kSameIfKnown, true, [](const Facts& f) { return Hash(f.plan); },
       "give all tasks the same model and optimizer"},
      {"hash of the training data", kSameIfKnown, true, [](const Facts& f) { return Hash(f.data); },
       "give all tasks the same data set"},
      {"provider of the network", kSame, true,
       [](const Facts& f) { return f.provider.empty() ? std::string("sealed TCP") : f.provider; },
       "give all tasks the same --fabric_provider"},
      // Both ends of a connection go by the shorter one. Who only asks is not told about.
      {"lease", kMayDiffer, true,
       [](const Facts& f) {
         const bool known = f.lease_ms != 0 && f.role != Role::kControl;
         return known ? fmt::format("{:g} s", f.lease_ms / 1e3) : std::string();
       },
       ""},
      {"build", kMayDiffer, false, [](const Facts& f) { return f.build; }, ""},
      // The bits of rounds may differ then.
      {"instruction set", kMayDiffer, true, [](const Facts& f) { return f.processor; }, ""},
  };
  return kRules;
}

Status CheckFacts(const TaskFacts& mine, const TaskFacts& theirs) {
  const bool asks = mine.role == Role::kControl || theirs.role == Role::kControl;
  for (const FactRule& rule : FactRules()) {
    const std::string here = rule.show(mine), there = rule.show(theirs);
    if (rule.rule == Rule::kMayDiffer || here == there || (asks && rule.of_tasks)) continue;
    if (rule.rule == Rule::kSameIfKnown && (here.empty() || there.empty())) continue;
    return FailedPrecondition(fmt::format("the {} of {} is {} and that of {} is {}: {}", rule.name,
                                          theirs.Name(), there, mine.Name(), here, rule.fix));
  }
  return {};
}

std::string Differences(const TaskFacts& mine, const TaskFacts& theirs) {
  std::string text;
  for (const FactRule& rule : FactRules()) {
    const std::string here = rule.show(mine), there = rule.show(theirs);
    if (rule.rule != Rule::kMayDiffer || here == there || here.empty() || there.empty()) continue;
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {} (here {})", rule.name, there, here);
  }
  return text;
}

Json FactsJson(const TaskFacts& facts) { return JsonOf(facts); }

Result<TaskFacts> FactsFromJson(const Json& json) {
  TaskFacts facts;
  JsonReader reader = ReadMessage(json);
  JsonMembers(reader, facts);
  PASSEL_RETURN_IF_ERROR(AsDataLoss(reader.Finish()));
  return facts;
}

}  // namespace passel::fabric

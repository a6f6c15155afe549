#include "lab/cell.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>

#include "lab/arenas.h"
#include "optim/optimizer_table.h"

namespace passel::lab {
namespace {

template <typename T>
struct NamedValue {
  T value;
  std::string_view name;
};

constexpr std::array<NamedValue<CellOp>, 3> kOps = {{
    {CellOp::kPush, "push"},
    {CellOp::kPushPull, "push_pull"},
    {CellOp::kRound, "round"},
}};
constexpr std::array<NamedValue<Foil>, 3> kFoils = {{
    {Foil::kNaive, "naive"},
    {Foil::kAtomic, "atomic"},
    {Foil::kMutex, "mutex"},
}};
constexpr std::array<NamedValue<Placement>, 3> kPlacements = {{
    {Placement::kFree, "free"},
    {Placement::kOwn, "own"},
    {Placement::kOne, "one"},
}};
constexpr std::array<NamedValue<CellPages>, 2> kPages = {{
    {CellPages::k4k, "4k"},
    {CellPages::kHuge, "huge"},
}};

template <typename T, std::size_t kCount>
std::string_view NameOf(const std::array<NamedValue<T>, kCount>& names, T value) {
  for (const auto& entry : names) {
    if (entry.value == value) return entry.name;
  }
  return "unknown";
}

template <typename T, std::size_t kCount>
Status Find(const std::array<NamedValue<T>, kCount>& names, std::string_view key,
            std::string_view text, T* value) {
  std::string all;
  for (const auto& entry : names) {
    if (entry.name == text) {
      *value = entry.value;
      return {};
    }
    all += fmt::format("{}{}", all.empty() ? "" : ", ", entry.name);
  }
  return InvalidArgument(fmt::format("{} is '{}', but must be one of {}", key, text, all));
}

Status FindOptimizer(std::string_view key, std::string_view text, OptimizerKind* kind) {
  const CellOptimizer* const found = CellOptimizerOf(text);
  if (found == nullptr) {
    return InvalidArgument(fmt::format("{} is '{}', but must be one of {}", key, text,
                                       fmt::join(CellOptimizerNames(), ", ")));
  }
  *kind = found->kind;
  return {};
}

template <typename T>
Status ParseNumber(std::string_view key, std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  const bool whole = end == text.data() + text.size();
  if (error == std::errc() && whole) return {};
  if (error == std::errc::result_out_of_range && whole) {
    return InvalidArgument(fmt::format("{} is {}, which is far too large", key, text));
  }
  return InvalidArgument(fmt::format("{} is '{}', but must be a number", key, text));
}

constexpr std::string_view kPrefix = "BM_Cell";

// 0, a closed loop, is none.
Status CheckRate(double rate) {
  if (rate >= kMinCellRate && rate <= kMaxCellRate) return {};
  return InvalidArgument(fmt::format("rate is {}, but must be from {:.0f} to {:.0f} a second", rate,
                                     kMinCellRate, kMaxCellRate));
}

Status ParseSharing(std::string_view key, std::string_view text, Sharing* sharing) {
  std::string all;
  for (const Sharing& each : kSharings) {
    const std::string_view name = SharingName(each);
    if (name == text) {
      *sharing = each;
      return {};
    }
    all += fmt::format("{}{}", all.empty() ? "" : ", ", name);
  }
  return InvalidArgument(fmt::format("{} is '{}', but must be one of {}", key, text, all));
}

}  // namespace

std::string_view CellOpName(CellOp op) { return NameOf(kOps, op); }
std::string_view SharingName(Sharing sharing) {
  return sharing.is_foil() ? NameOf(kFoils, sharing.foil) : ModeName(sharing.mode);
}
const CellOptimizer* CellOptimizerOf(OptimizerKind kind) {
  const auto* const found = std::ranges::find(kCellOptimizers, kind, &CellOptimizer::kind);
  return found == std::end(kCellOptimizers) ? nullptr : found;
}
const CellOptimizer* CellOptimizerOf(std::string_view name) {
  const auto* const found = std::ranges::find(
      kCellOptimizers, name, [](const CellOptimizer& o) { return OptimizerName(o.kind); });
  return found == std::end(kCellOptimizers) ? nullptr : found;
}
std::vector<std::string_view> CellOptimizerNames() {
  std::vector<std::string_view> names;
  for (const CellOptimizer& optimizer : kCellOptimizers) {
    names.push_back(OptimizerName(optimizer.kind));
  }
  return names;
}
std::string_view PlacementName(Placement placement) { return NameOf(kPlacements, placement); }
std::string_view CellPagesName(CellPages pages) { return NameOf(kPages, pages); }

bool LosesNothing(const Cell& cell) {
  if (cell.writers == 1) return true;
  if (cell.sharing.is_foil()) return cell.sharing.foil != Foil::kNaive;
  const ModeTraits& mode = TraitsOf(cell.sharing.mode);
  return mode.rounds || mode.binding;
}

std::string CellName(const Cell& cell) {
  std::string name = fmt::format("{}/op:{}/mode:{}/opt:{}/elems:{}/writers:{}/place:{}/pages:{}",
                                 kPrefix, CellOpName(cell.op), SharingName(cell.sharing),
                                 OptimizerName(cell.optimizer), cell.elements, cell.writers,
                                 PlacementName(cell.placement), CellPagesName(cell.pages));
  if (cell.rate_per_second > 0) name += fmt::format("/loop:open/rate:{}", cell.rate_per_second);
  return name;
}

Result<Cell> ParseCellName(std::string_view name) {
  constexpr std::array<std::string_view, 9> kKeys = {"op",    "mode",  "opt",  "elems", "writers",
                                                     "place", "pages", "loop", "rate"};
  constexpr std::size_t kClosedKeys = 7;
  Cell cell;
  std::string_view left = name;
  const auto next = [&left] {
    const std::size_t slash = std::min(left.find('/'), left.size());
    const std::string_view part = left.substr(0, slash);
    left.remove_prefix(std::min(slash + 1, left.size()));
    return part;
  };
  if (next() != kPrefix) {
    return InvalidArgument(fmt::format("the name of a cell begins with {}/, not '{}'", kPrefix,
                                       name.substr(0, name.find('/'))));
  }
  std::size_t keys = 0;
  for (; !left.empty() && keys < kKeys.size(); ++keys) {
    const std::string_view part = next();
    const std::string_view key = kKeys[keys];
    if (part.substr(0, key.size()) != key || part.substr(key.size(), 1) != ":") {
      return InvalidArgument(fmt::format("part {} of the cell '{}' is '{}', but must be {}:...",
                                         keys + 1, name, part, key));
    }
    const std::string_view text = part.substr(key.size() + 1);
    Status status;
    switch (keys) {
      case 0:
        status = Find(kOps, key, text, &cell.op);
        break;
      case 1:
        status = ParseSharing(key, text, &cell.sharing);
        break;
      case 2:
        status = FindOptimizer(key, text, &cell.optimizer);
        break;
      case 3:
        status = ParseNumber(key, text, &cell.elements);
        break;
      case 4:
        status = ParseNumber(key, text, &cell.writers);
        break;
      case 5:
        status = Find(kPlacements, key, text, &cell.placement);
        break;
      case 6:
        status = Find(kPages, key, text, &cell.pages);
        break;
      case 7:
        if (text != "open") status = InvalidArgument("loop is open, or left out with rate");
        break;
      default:
        status = ParseNumber(key, text, &cell.rate_per_second);
        if (status.ok()) status = CheckRate(cell.rate_per_second);
        break;
    }
    PASSEL_RETURN_IF_ERROR(status);
  }
  if (!left.empty()) {
    return InvalidArgument(fmt::format("'{}' is too much in the cell '{}'", left, name));
  }
  if (keys != kClosedKeys && keys != kKeys.size()) {
    return InvalidArgument(fmt::format("the cell '{}' lacks {}:...", name, kKeys[keys]));
  }
  return cell;
}

Status CheckCell(const Cell& cell, int usable_cores) {
  const std::string name = CellName(cell);
  if (cell.elements < 1 || cell.elements > kMaxCellElements) {
    return InvalidArgument(fmt::format("{}: elems is {}, but must be from 1 to {}", name,
                                       cell.elements, kMaxCellElements));
  }
  const int most = cell.placement == Placement::kOwn ? usable_cores
                                                     : std::max(2, kWritersPerCore * usable_cores);
  if (cell.writers < 1 || cell.writers > std::min(most, kMaxWorkers)) {
    return InvalidArgument(fmt::format(
        "{}: writers is {}, but must be from 1 to {} on {} usable core{}{}", name, cell.writers,
        std::min(most, kMaxWorkers), usable_cores, usable_cores == 1 ? "" : "s",
        cell.placement == Placement::kOwn ? ": with place:free or place:one they may share cores"
                                          : ""));
  }
  if (cell.sharing.in_rounds() != (cell.op == CellOp::kRound)) {
    return InvalidArgument(
        fmt::format("{}: mode {} takes {}", name, SharingName(cell.sharing),
                    cell.sharing.in_rounds() ? "op:round" : "op:push or op:push_pull"));
  }
  if (cell.rate_per_second != 0) {
    PASSEL_RETURN_IF_ERROR(CheckRate(cell.rate_per_second).WithContext(name));
  }
  if (CellOptimizerOf(cell.optimizer) == nullptr) {
    return InvalidArgument(fmt::format("cells have the optimizers {}, not {}",
                                       Listed(CellOptimizerNames(), "and"),
                                       OptimizerName(cell.optimizer)));
  }
  return {};
}

std::size_t CellBytes(const Cell& cell) {
  OptimizerConfig config;
  config.kind = cell.optimizer;
  const auto slots = static_cast<std::size_t>(NumSlots(config));
  const auto writers = static_cast<std::size_t>(cell.writers);
  const std::size_t copies = cell.op == CellOp::kPushPull ? 2 : 0;  // the pull's, and the limit's
  const std::size_t arena = 1 + slots + writers;
  const std::size_t each = 1 + slots + 1 + copies;
  return cell.elements * sizeof(float) * (arena + writers * each);
}

Status CheckCellMemory(const Cell& cell) {
  return CheckFreeMemory(CellBytes(cell)).WithContext(CellName(cell));
}

Result<StorePlan> CellPlan(const Cell& cell) {
  const Mode mode = cell.sharing.mode;
  PASSEL_ASSIGN_OR_RETURN(StorePlan plan, FlatPlan(mode, std::string(OptimizerName(cell.optimizer)),
                                                   cell.elements, cell.writers));
  plan.optimizer.learning_rate = 1;
  if (RowOf(cell.optimizer).Uses(&OptimizerConfig::initial_accumulator)) {
    plan.optimizer.initial_accumulator = 1;
  }
  plan.mode.number = TraitsOf(mode).omitted;
  PASSEL_RETURN_IF_ERROR(plan.Validate());
  return plan;
}

}  // namespace passel::lab

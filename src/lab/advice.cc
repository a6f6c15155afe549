#include "lab/advice.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace passel::lab {
namespace {

constexpr double kLeastEffect = 0.03;  // a smaller difference is none

std::string NameAndShare(const MeasuredCell& measured, const char* of = "") {
  return fmt::format("`{}` ({:.2f}{})", SharingName(measured.cell.sharing), measured.result.share,
                     of);
}

// "a", "a and b", "a, b and c"
std::string Joined(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

}  // namespace

double Noise(const CellResult& a, const CellResult& b) {
  return std::max(kLeastEffect * std::max(a.share, b.share),
                  (a.share_spread * a.share + b.share_spread * b.share) / 2);
}

std::string Advise(const std::vector<MeasuredCell>& cells, int writers) {
  std::vector<const MeasuredCell*> at_once, rounds;
  for (const MeasuredCell& measured : cells) {
    if (measured.cell.writers != writers || measured.cell.sharing.is_foil()) continue;
    (measured.cell.sharing.in_rounds() ? rounds : at_once).push_back(&measured);
  }
  const std::string where =
      fmt::format("On this machine with {} worker{}", writers, writers == 1 ? "" : "s");
  const auto faster = [](const MeasuredCell* a, const MeasuredCell* b) {
    return a->result.share > b->result.share;
  };
  std::stable_sort(at_once.begin(), at_once.end(), faster);
  std::stable_sort(rounds.begin(), rounds.end(), faster);
  std::string round;
  if (!rounds.empty()) {
    const MeasuredCell& best = *rounds[0];
    round =
        fmt::format("a round of `{}`, which {}, takes {:.3g} us", SharingName(best.cell.sharing),
                    TraitsOf(best.cell.sharing.mode).guarantee, best.result.latency.p50);
  }
  if (at_once.empty()) {
    return where + (round.empty() ? " no mode was measured, so none can be advised."
                                  : " only rounds were measured: " + round + ".");
  }
  if (!round.empty()) round = "; " + round;
  const MeasuredCell& best = *at_once[0];
  std::vector<std::string> same;
  std::string guarantees;
  for (const MeasuredCell* other : at_once) {
    const double gap = best.result.share - other->result.share;
    if (other != &best && gap > Noise(best.result, other->result)) continue;
    same.push_back(NameAndShare(*other, same.empty() ? " of the bare loops" : ""));
    guarantees +=
        fmt::format("{}`{}` {}", guarantees.empty() ? "" : "; ", SharingName(other->cell.sharing),
                    TraitsOf(other->cell.sharing.mode).guarantee);
  }
  if (same.size() > 1) {
    return fmt::format(
        "{}, {} cannot be told apart by this run: choose by what they guarantee ({})"
        "{}.",
        where, Joined(same), guarantees, round);
  }
  if (at_once.size() == 1) {
    return fmt::format(
        "{}, of the modes that apply each gradient only `{}` was measured: {:.2f} of the bare "
        "loops; it "
        "{}{}.",
        where, SharingName(best.cell.sharing), best.result.share,
        TraitsOf(best.cell.sharing.mode).guarantee, round);
  }
  return fmt::format("{}, `{}` is fastest: {:.2f} of the bare loops; it {}; {} follows{}.", where,
                     SharingName(best.cell.sharing), best.result.share,
                     TraitsOf(best.cell.sharing.mode).guarantee, NameAndShare(*at_once[1]), round);
}

}  // namespace passel::lab

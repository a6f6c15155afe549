#include "train/update_line.h"

#include <fmt/core.h>

#include "store/store_plan.h"

namespace passel {
namespace {

// "100 examples"; of several gradients "8 x 100 = 800 examples".
std::string ExamplesText(const UpdateFacts& facts, int gradients) {
  std::string factors;
  for (const int factor : {gradients, facts.push_every}) {
    if (factor > 1) factors += fmt::format("{} x ", factor);
  }
  const std::uint64_t all = std::uint64_t{facts.batch_size} *
                            static_cast<std::uint64_t>(facts.push_every) *
                            static_cast<std::uint64_t>(gradients);
  return factors.empty() ? fmt::format("{} examples", all)
                         : fmt::format("{}{} = {} examples", factors, facts.batch_size, all);
}

// What an update is in modes whose workers wait for each other.
std::string Round(const UpdateFacts& facts) {
  const int gradients = facts.mode.number == 0 ? facts.workers : facts.mode.number;
  std::string text = "one update a round, from ";
  if (gradients < facts.workers) {
    text += fmt::format("the first {}of {} gradients, ",
                        gradients == 1 ? "" : fmt::format("{} ", gradients), facts.workers);
  } else if (gradients > facts.workers) {
    text += fmt::format("{} gradients of {} worker{}, ", gradients, facts.workers,
                        facts.workers == 1 ? "" : "s");
  }
  return text + ExamplesText(facts, gradients);
}

// What updates are in modes in which every gradient is one.
std::string Updates(const UpdateFacts& facts) {
  const std::string examples = ExamplesText(facts, 1);
  if (facts.workers == 1) return "1 worker makes updates of " + examples;
  const std::string text =
      fmt::format("{} workers each make updates of {}", facts.workers, examples);
  if (facts.mode.traits().binding) return text + ", waiting for each other block by block alone";
  if (!facts.mode.traits().bounded) return text + ", without waiting for each other";
  return fmt::format("{}, at most {} step{} ahead of the slowest", text, facts.mode.number,
                     facts.mode.number == 1 ? "" : "s");
}

// Why the parameters cannot be in the memory of a GPU; "" if they can.
std::string WhyNotOnDevice(const UpdateFacts& facts) {
  StorePlan plan;
  plan.on_device = true;
  const auto refused = [&plan](const ModeSetting& mode) { return !plan.CheckMode(mode).ok(); };
  if (refused(facts.mode)) return fmt::format("{} has rounds", ModeName(facts.mode.mode));
  for (const ScheduledMode& later : facts.schedule) {
    if (refused(later.setting)) {
      return fmt::format("{}, from step {} on, has rounds", ModeName(later.setting.mode),
                         later.step);
    }
  }
  return facts.obstacle;
}

std::string OtherArena(const UpdateFacts& facts) {
  if (facts.on_device) return "--arena host would keep them in host memory";
  const std::string obstacle = WhyNotOnDevice(facts);
  return obstacle.empty()
             ? fmt::format("--arena device would keep them in the memory of GPU {}", facts.gpu)
             : "--arena device would be refused: " + obstacle;
}

}  // namespace

std::string UpdateLine(const UpdateFacts& facts) {
  const std::string place = facts.on_device
                                ? fmt::format("the memory of GPU {} (--arena device)", facts.gpu)
                                : "host memory (--arena host)";
  std::string mode = facts.mode.ToString();
  if (!facts.schedule.empty()) {
    mode +=
        fmt::format(" until step {}, then as --mode_schedule says", facts.schedule.front().step);
  }
  return fmt::format("parameters in {}; {}: {}; {}", place, mode,
                     IsRoundMode(facts.mode.mode) ? Round(facts) : Updates(facts),
                     OtherArena(facts));
}

}  // namespace passel

#include "job/placement_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

#include "job/flag_checks.h"

namespace passel::job {
namespace {

// "fixed:4", "min_max:4" or "min_max:4:65536", "axis:BYTES" or "axis:BYTES:4", "none"
Result<Partitioner> ParsePartitioner(const std::string& text) {
  std::vector<std::string> words;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t colon = text.find(':', begin);
    words.push_back(text.substr(begin, colon - begin));
    if (colon == std::string::npos) break;
    begin = colon + 1;
  }
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 1; i < words.size(); ++i) {
    std::int64_t number = 0;
    const char* end = words[i].data() + words[i].size();
    const auto [stop, error] = std::from_chars(words[i].data(), end, number);
    if (error != std::errc() || stop != end || number < 1 || number > (std::int64_t{1} << 50)) {
      return InvalidArgument(
          fmt::format("--partitioner {}: \"{}\" is not a number from 1 to 2^50: use one, e.g. "
                      "fixed:4",
                      text, words[i]));
    }
    numbers.push_back(number);
  }
  const auto part_count = [](std::int64_t n) {
    return static_cast<int>(std::min<std::int64_t>(n, 1'000'000));
  };
  if (words[0] == "none" && numbers.empty()) return Partitioner::None();
  if (words[0] == "fixed" && numbers.size() == 1) {
    return Partitioner::FixedSize(part_count(numbers[0]));
  }
  if (words[0] == "min_max" && numbers.size() == 1) {
    return Partitioner::MinMax(part_count(numbers[0]));
  }
  if (words[0] == "min_max" && numbers.size() == 2) {
    return Partitioner::MinMax(part_count(numbers[0]), numbers[1]);
  }
  if (words[0] == "axis" && numbers.size() == 1) return Partitioner::VariableAxisSize(numbers[0]);
  if (words[0] == "axis" && numbers.size() == 2) {
    return Partitioner::VariableAxisSize(numbers[0], part_count(numbers[1]));
  }
  return InvalidArgument(fmt::format(
      "--partitioner {} is not understood: use none, fixed:PARTS, min_max:MAX_PARTS[:MIN_BYTES] or "
      "axis:MAX_BYTES[:MAX_PARTS]",
      text));
}

// "hid_w=/job:ps/task:1"
Result<PlacementOptions::Pin> ParsePin(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    return InvalidArgument(fmt::format(
        "--pin_variable {} is not understood: use NAME=DEVICE, e.g. hid_w=/job:ps/task:1", text));
  }
  PlacementOptions::Pin pin;
  pin.variable = text.substr(0, equals);
  Result<Device> device = ParseDevice(text.substr(equals + 1));
  if (!device.ok()) {
    return InvalidArgument(
        fmt::format("--pin_variable {}: \"{}\" is not a device: use one of a ps, e.g. "
                    "{}=/job:ps/task:1",
                    text, text.substr(equals + 1), pin.variable));
  }
  pin.device = std::move(*device);
  return pin;
}

}  // namespace

Result<PlacementOptions> CheckPlacementSettings(const JobSettings& f) {
  PlacementOptions options;
  PASSEL_ASSIGN_OR_RETURN(
      options.strategy, Choose<PlacementStrategy>("--placement", f.placement,
                                                  {{"round_robin", PlacementStrategy::kRoundRobin},
                                                   {"greedy", PlacementStrategy::kGreedyBytes}}));
  PASSEL_ASSIGN_OR_RETURN(options.partitioner, ParsePartitioner(f.partitioner));
  PASSEL_ASSIGN_OR_RETURN(
      options.global_step_last,
      Choose<bool>("--global_step", f.global_step, {{"first", false}, {"last", true}}));
  if (f.global_step_bytes != 4 && f.global_step_bytes != 8) {
    return InvalidArgument(
        fmt::format("--global_step_bytes is 4 (int32) or 8 (int64), not {}: use one of them",
                    f.global_step_bytes));
  }
  options.global_step_bytes = static_cast<int>(f.global_step_bytes);
  for (const std::string& text : f.pin_variable) {
    PASSEL_ASSIGN_OR_RETURN(PlacementOptions::Pin pin, ParsePin(text));
    for (const PlacementOptions::Pin& known : options.pins) {
      if (known.variable != pin.variable) continue;
      return InvalidArgument(
          fmt::format("--pin_variable names {} twice, the second time as {}: give it one place",
                      pin.variable, text));
    }
    options.pins.push_back(std::move(pin));
  }
  return options;
}

}  // namespace passel::job

#include "io/checkpoint_index.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace passel {
namespace {

constexpr std::string_view kPrefix = "model.ckpt-";
constexpr std::string_view kNewest = "model_checkpoint_path";
constexpr std::string_view kAll = "all_model_checkpoint_paths";
constexpr std::string_view kTimes = "all_model_checkpoint_timestamps";
constexpr std::string_view kPreserved = "last_preserved_timestamp";

// Whoever owns the folder reads the index first: nothing goes on there with it.
constexpr const char* kAdvice =
    "restore it, or delete it and name the checkpoint to go on from with --resume "
    "FOLDER/model.ckpt-STEP";

Status BadLine(int line, std::string_view what) {
  return DataLoss(fmt::format("line {} of the index {}: {}", line, what, kAdvice));
}

std::string_view Trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::optional<double> ParseTime(std::string_view text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return {};
  if (!std::isfinite(value) || value < 0) return {};
  return value;
}

// In quotes; no name that is valid needs an escape.
std::optional<std::string> ParseName(std::string_view text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return {};
  text = text.substr(1, text.size() - 2);
  if (!StepOfCheckpoint(text)) return {};
  return std::string(text);
}

// Nothing for any other comment.
std::optional<ValidationScore> ParseScore(std::string_view line) {
  ValidationScore score;
  int end = 0;
  const std::string text(line);
  if (std::sscanf(text.c_str(), "# validation accuracy %lf at global step %" SCNd64 "%n",
                  &score.accuracy, &score.step, &end) != 2 ||
      static_cast<std::size_t>(end) != text.size()) {
    return {};
  }
  if (!(score.accuracy >= 0 && score.accuracy <= 1) || score.step < 0) return {};
  return score;
}

}  // namespace

const CheckpointIndex::Entry* CheckpointIndex::Find(std::string_view name) const {
  const auto found = std::ranges::find(kept, name, &Entry::name);
  return found == kept.end() ? nullptr : &*found;
}

std::string CheckpointName(std::int64_t step) { return fmt::format("{}{}", kPrefix, step); }

std::optional<std::int64_t> StepOfCheckpoint(std::string_view name) {
  if (!name.starts_with(kPrefix)) return {};
  name.remove_prefix(kPrefix.size());
  std::int64_t step = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || stop != name.data() + name.size()) return {};
  if (name.front() == '-' || step > kMaxCheckpointStep) return {};
  return step;
}

std::string ToText(const CheckpointIndex& index) {
  std::string text;
  if (!index.kept.empty()) {
    text += fmt::format("{}: \"{}\"\n", kNewest, index.kept.back().name);
  }
  for (const auto& entry : index.kept) text += fmt::format("{}: \"{}\"\n", kAll, entry.name);
  for (const auto& entry : index.kept) text += fmt::format("{}: {}\n", kTimes, entry.saved_at);
  text += fmt::format("{}: {}\n", kPreserved, index.last_preserved);
  if (index.score) {
    text += fmt::format("# validation accuracy {} at global step {}\n", index.score->accuracy,
                        index.score->step);
  }
  return text;
}

Result<CheckpointIndex> ParseCheckpointIndex(std::string_view text) {
  CheckpointIndex index;
  std::optional<std::string> newest;
  std::vector<double> times;
  bool empty = true;
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return BadLine(line, "is cut off");
    const std::string_view all = Trimmed(text.substr(0, end));
    text.remove_prefix(end + 1);
    if (const auto score = ParseScore(all)) index.score = score;
    if (all.empty() || all.front() == '#') continue;
    empty = false;
    const std::size_t colon = std::min(all.find(':'), all.size());
    const std::string_view key = Trimmed(all.substr(0, colon));
    const std::string_view value = Trimmed(all.substr(std::min(colon + 1, all.size())));
    if (key == kNewest || key == kAll) {
      std::optional<std::string> name = ParseName(value);
      if (!name) return BadLine(line, "names no checkpoint, but " + Quoted(value));
      if (key == kNewest && newest) return BadLine(line, "names a second newest checkpoint");
      if (key == kNewest) {
        newest = std::move(*name);
      } else if (index.Find(*name) != nullptr) {
        return BadLine(line, "names a checkpoint twice: " + *name);
      } else if (index.kept.size() == kMaxKeptCheckpoints) {
        return BadLine(line, fmt::format("is checkpoint {}, and {} are the most",
                                         kMaxKeptCheckpoints + 1, kMaxKeptCheckpoints));
      } else {
        index.kept.push_back({std::move(*name), 0});
      }
    } else if (key == kTimes || key == kPreserved) {
      const std::optional<double> time = ParseTime(value);
      if (!time) return BadLine(line, "has no time, but " + Quoted(value));
      if (key == kPreserved) {
        index.last_preserved = *time;
      } else {
        times.push_back(*time);
      }
    } else {
      return BadLine(line, "is not understood: " + Quoted(all));
    }
  }
  if (empty) {  // no index is written so
    return DataLoss(fmt::format("the index is empty: {}", kAdvice));
  }
  if (times.size() > index.kept.size()) {
    return DataLoss(fmt::format("the index has more times than checkpoints, {} for {}: {}",
                                times.size(), index.kept.size(), kAdvice));
  }
  // TensorFlow's older indexes have no times.
  for (std::size_t i = 0; i < times.size(); ++i) index.kept[i].saved_at = times[i];
  if (newest && (index.kept.empty() || index.kept.back().name != *newest)) {
    // One that was named by hand, to go back to: it counts as the newest.
    const auto found = std::ranges::find(index.kept, *newest, &CheckpointIndex::Entry::name);
    CheckpointIndex::Entry entry{*newest, 0};
    if (found != index.kept.end()) {
      entry = std::move(*found);
      index.kept.erase(found);
    }
    index.kept.push_back(std::move(entry));
  }
  return index;
}

}  // namespace passel

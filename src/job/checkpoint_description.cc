#include "job/checkpoint_description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/counted.h"
#include "base/text.h"
#include "job/checkpoint_settings.h"
#include "job/job_settings.h"

namespace passel::job {
namespace {

constexpr const char* kSettingsWord = "settings";
constexpr const char* kProgressWord = "progress";

Result<TensorSummary> Summarize(const StoredTensors& stored, const StoredTensors::Tensor& tensor) {
  TensorSummary summary;
  summary.name = tensor.name;
  summary.shape = tensor.shape;
  double sum = 0, squares = 0;
  std::uint64_t finite = 0;
  PASSEL_RETURN_IF_ERROR(
      stored.ReadAll(tensor, [&](std::uint64_t, std::span<const float> values) -> Status {
        for (const double value : values) {
          if (!std::isfinite(value)) continue;
          summary.least = finite == 0 ? value : std::min(summary.least, value);
          summary.most = finite == 0 ? value : std::max(summary.most, value);
          sum += value;
          squares += value * value;
          ++finite;
        }
        return {};
      }));
  summary.mean = finite == 0 ? 0 : sum / static_cast<double>(finite);
  summary.norm = std::sqrt(squares);
  summary.not_finite = tensor.elements() - finite;
  return summary;
}

// "--batch_size=50 --hidden_units=16"
std::string ChangedSettings(const Json& settings) {
  const Json usual = SettingsToKeep(JobSettings());
  std::vector<std::string> changed;
  for (const auto& [name, value] : *settings.object()) {
    const Json* const default_value = usual.Find(name);
    if (value.text() == nullptr) continue;
    if (default_value != nullptr && *default_value->text() == *value.text()) continue;
    changed.push_back(fmt::format("--{}={}", Printable(name, 64), Printable(*value.text(), 1024)));
  }
  return changed.empty() ? "all at their defaults" : fmt::format("{}", fmt::join(changed, " "));
}

// "4 workers, 1003 local steps together"
std::string ProgressText(const Json& progress) {
  std::uint64_t workers = 0, steps = 0;
  if (const Json* const all = progress.Find("workers"); all != nullptr && all->list() != nullptr) {
    for (const Json& worker : *all->list()) {
      ++workers;
      const Json* const own = worker.Find("local_steps");
      if (own != nullptr) steps += own->As<std::uint64_t>().value_or(0);
    }
  }
  return Counted(workers, "worker") + ", " + Counted(steps, "local step");
}

}  // namespace

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return fmt::format("{}", fmt::join(shape, "x"));
}

Result<StoredDescription> Describe(const StoredTensors& stored) {
  StoredDescription description;
  description.name = stored.name();
  description.files = stored.files().size();
  description.bytes = stored.bytes();
  description.words = stored.Words();
  for (const StoredTensors::Tensor& tensor : stored.tensors()) {
    PASSEL_ASSIGN_OR_RETURN(TensorSummary summary, Summarize(stored, tensor));
    description.tensors.push_back(std::move(summary));
  }
  return description;
}

std::string ToText(const StoredDescription& d) {
  std::string text = fmt::format("{}: {} bytes in {}\n", d.name, d.bytes, Counted(d.files, "file"));
  for (const auto& [name, value] : *d.words.object()) {
    std::string shown = value.text() != nullptr ? *value.text() : value.Write();
    if (name == kSettingsWord && value.object() != nullptr) shown = ChangedSettings(value);
    if (name == kProgressWord) shown = ProgressText(value);
    text += fmt::format("  {:<16} {}\n", Printable(name, 64), Printable(shown, 4096));
  }
  text += fmt::format("{:<24} {:>14} {:>12} {:>12} {:>12} {:>12}\n", "TENSOR", "SHAPE", "LEAST",
                      "MEAN", "MOST", "NORM");
  for (const TensorSummary& t : d.tensors) {
    text += fmt::format("{:<24} {:>14} {:>12.5g} {:>12.5g} {:>12.5g} {:>12.5g}{}\n", t.name,
                        ShapeText(t.shape), t.least, t.mean, t.most, t.norm,
                        t.not_finite == 0 ? "" : fmt::format("  {} not finite", t.not_finite));
  }
  return text;
}

Json ToJson(const StoredDescription& d) {
  Json tensors = Json::MakeList();
  for (const TensorSummary& t : d.tensors) {
    tensors.Add({{"name", t.name},
                 {"shape", t.shape},
                 {"least", t.least},
                 {"mean", t.mean},
                 {"most", t.most},
                 {"norm", t.norm},
                 {"not_finite", t.not_finite}});
  }
  return {{"checkpoint", d.name},
          {"files", d.files},
          {"bytes", d.bytes},
          {"words", d.words},
          {"tensors", std::move(tensors)}};
}

}  // namespace passel::job

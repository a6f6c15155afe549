#include "bench/products/comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "lab/samples.h"

namespace passel::bench {
namespace {

constexpr double kAsGood = 0.97;  // of the fastest

double Best(const Times& times) { return *std::min_element(times.begin(), times.end()); }
double Most(const std::vector<double>& rates) {
  return *std::max_element(rates.begin(), rates.end());
}

std::string Line(const std::string& name, const Summary& s) {
  if (s.cells == 0) return fmt::format("{:<28} nothing\n", name);
  return fmt::format("{:<28} {:>6} {:>8.2f} {:>12.2f} {:>9} {:>8.2f}  {}\n", name, s.cells,
                     std::exp(s.logs / s.cells), std::exp(s.logs_of_best / s.cells), s.as_good,
                     s.least_of_best, s.least_name);
}

// A row with a target: of what passel uses, warm.
struct Target {
  const char* what;
  std::size_t inputs, outputs, batch;
  double avx2, avx512;
};
constexpr Target kTargets[] = {{"default model", 784, 100, 100, 0.75, 0.65},
                               {"1,024 wide", 1024, 1024, 256, 0.80, 0.80},
                               {"2,048 wide", 2048, 2048, 256, 0.80, 0.80},
                               {"4,096 wide", 4096, 4096, 256, 0.80, 0.80}};

}  // namespace

std::optional<double> Comparison::Share(const Cell& cell, std::size_t library) const {
  if (cell.of[library].empty()) return std::nullopt;
  return cell.shape.Flops() / (1e3 * Best(cell.of[library])) / Most(cell.peak);
}

double Comparison::BestShare(const Cell& cell) const {
  double best = 0;
  for (std::size_t i = 0; i < libraries.size(); ++i) {
    best = std::max(best, Share(cell, i).value_or(0));
  }
  return best;
}

Summary Comparison::Summarize(bool cold, bool large, std::size_t library) const {
  Summary s;
  for (const Cell& cell : cells) {
    if (cell.cold != cold || cell.peak.empty() || large != (cell.shape.batch >= 100)) continue;
    const std::optional<double> share = Share(cell, library);
    if (!share) continue;
    const double of_best = *share / BestShare(cell);
    ++s.cells;
    s.as_good += of_best >= kAsGood;
    s.logs += std::log(*share);
    s.logs_of_best += std::log(of_best);
    if (of_best < s.least_of_best) {
      s.least_of_best = of_best;
      s.least_name = cell.shape.Name();
    }
  }
  return s;
}

std::string Comparison::ToTable() const {
  std::string text;
  for (std::size_t i = 0; i < libraries.size(); ++i) {
    text += fmt::format("[{}] {:<26} kernels: {}{}\n", i + 1, libraries[i], kernels[i],
                        chosen == i ? "  <- passel's" : "");
  }
  for (const auto& [name, why] : missing) text += fmt::format("[-] {}: missing: {}\n", name, why);
  for (const bool cold : {false, true}) {
    text += fmt::format(
        "\nShare of the core's peak ({}), {}; * within 3 % of the fastest\n{:<28} {:>9}",
        VectorSetName(set),
        cold ? "cold: operands in memory alone" : "warm: operands as they are left",
        "inputs-outputs batch", "peak GF/s");
    for (std::size_t i = 0; i < libraries.size(); ++i)
      text += fmt::format(" {:>6}", fmt::format("[{}]", i + 1));
    text += '\n';
    for (const Cell& cell : cells) {
      if (cell.cold != cold || cell.peak.empty()) continue;
      text += fmt::format("{:<28} {:>9.1f}", cell.shape.Name(), Most(cell.peak));
      for (std::size_t i = 0; i < libraries.size(); ++i) {
        const std::optional<double> share = Share(cell, i);
        text += share ? fmt::format(" {:>5.2f}{}", *share,
                                    *share >= kAsGood * BestShare(cell) ? '*' : ' ')
                      : fmt::format(" {:>6}", "-");
      }
      text += '\n';
    }
    for (const bool large : {false, true}) {
      text += fmt::format("\n{:<28} {:>6} {:>8} {:>12} {:>9} {:>8}\n",
                          large ? "geometric means, batch >= 100" : "geometric means, batch < 100",
                          "cells", "of peak", "of fastest", "fastest", "least");
      for (std::size_t i = 0; i < libraries.size(); ++i) {
        text += Line(libraries[i], Summarize(cold, large, i));
      }
    }
  }
  if (!chosen) {
    return text +
           fmt::format("\nno target was looked at: passel's choice, {}, is missing\n", passels);
  }
  text += '\n';
  for (const Target& target : kTargets) {
    for (const Cell& cell : cells) {
      const Shape& s = cell.shape;
      if (cell.cold || cell.peak.empty() || s.inputs != target.inputs ||
          s.outputs != target.outputs || s.batch != target.batch) {
        continue;
      }
      const double least = set == VectorSet::kAvx512 ? target.avx512 : target.avx2;
      const double share = Share(cell, *chosen).value_or(0);
      text += fmt::format("{:<14} {:<24} {:.2f} of peak, target >= {:.2f}: {}\n", target.what,
                          s.Name(), share, least, share >= least ? "met" : "missed");
    }
  }
  return text;
}

Json Comparison::ToJson() const {
  Json json;
  json["vectors"] = VectorSetName(set);
  json["chosen"] = passels;
  json["chosen_is_missing"] = !chosen.has_value();
  for (std::size_t i = 0; i < libraries.size(); ++i) json["kernels"][libraries[i]] = kernels[i];
  json["missing"] = Json::MakeObject();
  for (const auto& [name, why] : missing) json["missing"][name] = why;
  Json list = Json::MakeList();
  for (const Cell& cell : cells) {
    if (cell.peak.empty()) continue;
    Json one;
    one["inputs"] = cell.shape.inputs;
    one["outputs"] = cell.shape.outputs;
    one["batch"] = cell.shape.batch;
    one["product"] = cell.shape.Name().substr(cell.shape.Name().rfind(' ') + 1);
    one["cold"] = cell.cold;
    one["turns"] = cell.peak.size();
    one["peak_gflops"] = Most(cell.peak);
    for (std::size_t i = 0; i < libraries.size(); ++i) {
      const std::optional<double> share = Share(cell, i);
      if (!share) continue;
      one["libraries"][libraries[i]] = {
          {"best_us", Best(cell.of[i])}, {"median_us", lab::Median(cell.of[i])}, {"share", *share}};
    }
    list.Add(std::move(one));
  }
  json["products"] = std::move(list);
  return json;
}

}  // namespace passel::bench

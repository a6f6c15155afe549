// What all benchmarks found, as JSON: docs/benchmarks.md, "The results file".

#include <nlohmann/json.hpp>

#include "bench/report.h"
#include "lab/samples.h"

namespace passel::bench {

// As objects of these fields.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LineMatrix, cores, round_trip_ns, update_ns_per_line)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Limit, what, bytes, cores, value, unit)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Scaling, sharing, workers, steps_per_second,
                                   private_steps_per_second, ratio, spread)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TimeSplit, sharing, workers, gather_us, forward_us, backward_us,
                                   update_us, wait_us, other_us)

std::string Report::ToJson(const Run& run) const {
  nlohmann::ordered_json json;
  json["format"] = lab::kResultsFormat;
  for (const auto& [name, value] : run.machine) json["machine"][name] = value;
  json["load"] = {{"other_cores", run.load.cores},
                  {"steal", run.load.steal},
                  {"load_average_before", run.load_average_before},
                  {"load_average_after", run.load_average_after}};
  json["seconds"] = run.seconds;
  json["interrupted"] = run.interrupted;
  json["warnings"] = Warnings(run);
  json["notes"] = notes_;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Row& row : rows_) {
    nlohmann::ordered_json r;
    r["benchmark"] = row.benchmark;
    r["what"] = row.what;
    r["unit"] = row.unit;
    r["verdict"] = Verdict(row);
    if (!row.not_applicable.empty()) r["reason"] = row.not_applicable;
    if (!row.error.empty()) r["error"] = row.error;
    if (row.not_applicable.empty() && row.error.empty()) {
      r["measured"] = row.measured;
      r["limit"] = nullptr;
      if (row.limit) r[row.is_reference ? "reference" : "limit"] = *row.limit;
      r["ratio"] = row.ratio ? nlohmann::ordered_json(*row.ratio) : nlohmann::ordered_json();
      r["pairs"] = row.pairs;
      r["spread"] = lab::Spread(row.pairs);
    }
    if (row.target.kind != Target::Kind::kNone) {
      r["target"] = {
          {row.target.kind == Target::Kind::kAtMost ? "at_most" : "at_least", row.target.bound},
          {"of", row.target.of_ratio ? "ratio" : "measured"}};
    }
    if (row.latency) {
      r["latency"] = {{"samples", row.latency->samples},
                      {"p50", row.latency->p50},
                      {"p99", row.latency->p99},
                      {"p999", row.latency->p999},
                      {"max", row.latency->maximum}};
    }
    if (!row.note.empty()) r["note"] = row.note;
    r["load"] = {{"other_cores", row.load.cores}, {"steal", row.load.steal}};
    r["seconds"] = row.seconds;
    rows.push_back(std::move(r));
  }
  json["rows"] = rows;
  json["guarantees"] = lab::GuaranteesToJson();
  json["cells"] = nlohmann::ordered_json::array();
  for (const lab::CellRow& cell : cells_) json["cells"].push_back(lab::CellToJson(cell));
  json["line_transfer"] = nlohmann::json(lines_);
  json["limits"] = nlohmann::json(limits_);
  json["scaling"] = nlohmann::json(scaling_);
  json["time_split"] = nlohmann::json(splits_);
  return json.dump(2) + "\n";
}

}  // namespace passel::bench

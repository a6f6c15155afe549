// What all benchmarks found, as JSON: docs/benchmarks.md, "The results file".

#include "bench/report.h"
#include "lab/samples.h"

namespace passel::bench {

std::string Report::ToJson(const Run& run) const {
  Json json;
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
  Json rows = Json::MakeList();
  for (const Row& row : rows_) {
    Json r;
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
      r["ratio"] = row.ratio;
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
    rows.Add(std::move(r));
  }
  json["rows"] = rows;
  json["guarantees"] = lab::GuaranteesToJson();
  json["cells"] = Json::MakeList();
  for (const lab::CellRow& cell : cells_) json["cells"].Add(lab::CellToJson(cell));
  json["line_transfer"] = {{"cores", lines_.cores},
                           {"round_trip_ns", lines_.round_trip_ns},
                           {"update_ns_per_line", lines_.update_ns_per_line}};
  json["limits"] = Json::MakeList();
  for (const Limit& limit : limits_) {
    json["limits"].Add({{"what", limit.what},
                        {"bytes", limit.bytes},
                        {"cores", limit.cores},
                        {"value", limit.value},
                        {"unit", limit.unit}});
  }
  json["scaling"] = Json::MakeList();
  for (const Scaling& s : scaling_) {
    json["scaling"].Add({{"sharing", s.sharing},
                         {"workers", s.workers},
                         {"steps_per_second", s.steps_per_second},
                         {"private_steps_per_second", s.private_steps_per_second},
                         {"ratio", s.ratio},
                         {"spread", s.spread}});
  }
  json["time_split"] = Json::MakeList();
  for (const TimeSplit& s : splits_) {
    json["time_split"].Add({{"sharing", s.sharing},
                            {"workers", s.workers},
                            {"gather_us", s.gather_us},
                            {"forward_us", s.forward_us},
                            {"backward_us", s.backward_us},
                            {"update_us", s.update_us},
                            {"wait_us", s.wait_us},
                            {"other_us", s.other_us}});
  }
  return json.Write(2) + "\n";
}

}  // namespace passel::bench

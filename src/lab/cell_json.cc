#include "lab/cell_json.h"

#include "lab/advice.h"

namespace passel::lab {

Json CellToJson(const CellRow& row) {
  const Cell& cell = row.cell;
  Json json;
  json["name"] = CellName(cell);
  json["op"] = CellOpName(cell.op);
  json["mode"] = SharingName(cell.sharing);
  json["optimizer"] = OptimizerName(cell.optimizer);
  json["elements"] = cell.elements;
  json["writers"] = cell.writers;
  json["placement"] = PlacementName(cell.placement);
  json["pages"] = CellPagesName(cell.pages);
  json["loop"] = cell.rate_per_second > 0 ? "open" : "closed";
  if (cell.rate_per_second > 0) json["rate_per_second"] = cell.rate_per_second;
  json["unit"] = "us";
  if (!row.not_applicable.empty()) {
    json["not_applicable"] = row.not_applicable;
    return json;
  }
  if (!row.error.empty()) {
    json["error"] = row.error;
    return json;
  }
  const CellResult& result = row.result;
  json["samples"] = result.latency.samples;
  json["p50"] = result.latency.p50;
  json["p90"] = result.latency.p90;
  json["p99"] = result.latency.p99;
  json["p999"] = result.latency.p999;
  json["max"] = result.latency.maximum;
  json["curve"] = Json::MakeList();
  for (const auto& [share, latency] : result.latency.curve) {
    json["curve"].Add(Json::MakeList(share, latency));
  }
  json["limit"] = {{"what", result.limit_what},
                   {"p50", result.limit.p50},
                   {"p99", result.limit.p99},
                   {"updates_per_second", result.limit_updates_per_second}};
  json["ratio"] = result.ratio;
  json["pairs"] = result.pairs;
  json["spread"] = result.spread;
  json["updates_per_second"] = result.updates_per_second;
  json["share"] = result.share;
  json["share_spread"] = result.share_spread;
  json["lost_updates"] = result.lost_updates;
  json["busy_blocks"] = result.busy_blocks;
  json["overlapped_blocks"] = result.overlapped_blocks;
  json["pushes"] = result.pushes;
  if (!result.note.empty()) json["note"] = result.note;
  if (row.load) json["load"] = {{"other_cores", row.load->cores}, {"steal", row.load->steal}};
  return json;
}

Json GuaranteesToJson() {
  Json json;
  for (const ModeTraits& mode : kModes) json[mode.name] = mode.guarantee;
  return json;
}

}  // namespace passel::lab

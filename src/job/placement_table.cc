#include "job/placement_table.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "data/dataset.h"
#include "data/locate.h"
#include "train/model_plan.h"

namespace passel::job {
namespace {

Status ChooseSizes(const SourceSettings& source, JobConfig* config) {
  if (source.data_dir.empty()) {
    config->model.inputs = 784;
    config->model.classes = 10;
    return config->model.Validate();
  }
  PASSEL_ASSIGN_OR_RETURN(const DataLocation location, Locate(source));
  PASSEL_ASSIGN_OR_RETURN(const OwnedDataset data, OwnedDataset::Load(location.dir));
  return FitToData(*data, 1, config);
}

}  // namespace

Result<std::string> PlacementTable(const SourceSettings& source, JobConfig config, int ps) {
  PASSEL_RETURN_IF_ERROR(ChooseSizes(source, &config));
  const int tasks = ps > 0 ? ps : 1;
  PASSEL_ASSIGN_OR_RETURN(const std::vector<VariablePart> parts,
                          PlaceWithGlobalStep(config.model, tasks, config.placement));
  const auto step = std::find_if(parts.begin(), parts.end(), [](const VariablePart& part) {
    return part.name == "global_step";
  });
  PASSEL_CHECK(step != parts.end(), "global_step is placed");
  std::string text = fmt::format("{:<20} {:>15} {:>12}  device", "variable", "rows", "bytes");
  if (ps > 0) {
    // What a reader who knows the reference programs' tables must know.
    text += fmt::format(" (global_step: its turn counts on ps/{}, as {} bytes; ps/0 keeps it)",
                        step->ps, step->bytes);
  }
  text += '\n';
  std::vector<int> counts(static_cast<std::size_t>(tasks));
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(tasks));
  for (const VariablePart& part : parts) {
    const bool is_step = &part == &*step;
    const int at = is_step ? 0 : part.ps;
    text += fmt::format(
        "{:<20} {:>15} {:>12}  {}\n", part.name,
        is_step ? "-" : fmt::format("{}-{}", part.first_row, part.first_row + part.rows - 1),
        part.bytes, ps > 0 ? fmt::format("/job:ps/task:{}", at) : "this process");
    ++counts[static_cast<std::size_t>(at)];
    bytes[static_cast<std::size_t>(at)] += part.bytes;
  }
  for (int task = 0; task < ps; ++task) {
    const auto i = static_cast<std::size_t>(task);
    text += fmt::format("ps/{}: {} variables or parts, {} bytes\n", task, counts[i], bytes[i]);
  }
  if (ps > 0) text += "slot variables of the optimizer live with their variable\n";
  return text;
}

}  // namespace passel::job

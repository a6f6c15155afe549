// model_graph.h - the model as a picture and as a table: which variables there are, of which shape,
// on which device, and what is computed of them.
//
// Names and kinds of the nodes are those of the reference programs' graphs, so that TensorBoard
// colours and folds them as it folds theirs.

#pragma once

#include <string>

#include "io/event.h"
#include "nn/model_config.h"
#include "train/model_plan.h"
#include "train/summary_options.h"

namespace passel {

/// Inputs, variables (each part of one that is split), layers, loss, accuracy and the update.
Graph ModelGraph(const ModelConfig& model, const ModelLayout& layout, const GraphPlaces& places);

/// The variables as a table in Markdown: name, shape, elements, device.
std::string VariablesInMarkdown(const VariableTable& table, bool has_ps);

}  // namespace passel

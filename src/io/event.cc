#include "io/event.h"

#include <event.pb.h>
#include <fmt/core.h>

#include <set>

#include "base/check.h"
#include "io/value_histogram.h"

namespace passel {
namespace {

constexpr int kString = 7;  // of TensorFlow's types

// Rank 0: what a shape is that has no dimensions.
void ToMessage(const std::vector<std::int64_t>& shape, event::Shape* message) {
  for (const std::int64_t size : shape) message->add_dim()->set_size(size);
}

void ToMessage(const ValueHistogram& histogram, event::Histogram* message) {
  message->set_min(histogram.min);
  message->set_max(histogram.max);
  message->set_num(histogram.num);
  message->set_sum(histogram.sum);
  message->set_sum_squares(histogram.sum_squares);
  message->mutable_bucket_limit()->Assign(histogram.limits.begin(), histogram.limits.end());
  message->mutable_bucket()->Assign(histogram.counts.begin(), histogram.counts.end());
}

Status ToMessage(const SummaryValue& value, event::Summary::Value* message) {
  message->set_tag(value.tag);
  if (const auto* const scalar = std::get_if<double>(&value.value)) {
    message->set_simple_value(static_cast<float>(*scalar));
  } else if (const auto* const elements = std::get_if<std::vector<float>>(&value.value)) {
    PASSEL_ASSIGN_OR_RETURN(const ValueHistogram histogram, HistogramOf(*elements, value.tag));
    ToMessage(histogram, message->mutable_histo());
  } else {
    message->mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
    event::Tensor* const tensor = message->mutable_tensor();
    tensor->set_dtype(kString);
    tensor->mutable_tensor_shape();
    tensor->add_string_val(std::get<std::string>(value.value));
  }
  return {};
}

Status ToMessage(const Summary& summary, event::Summary* message,
                 std::vector<std::string>* left_out) {
  std::set<std::string_view> tags;
  for (const SummaryValue& value : summary) {
    if (!tags.insert(value.tag).second) {
      return InvalidArgument(fmt::format("Duplicate tag {} found in summary inputs", value.tag));
    }
    if (const Status made = ToMessage(value, message->add_value()); !made.ok()) {
      message->mutable_value()->RemoveLast();
      left_out->emplace_back(made.message());
    }
  }
  return {};
}

void ToMessage(const SessionLog& log, event::SessionLog* message) {
  message->set_status(static_cast<event::SessionLog::Status>(log.status));
  message->set_checkpoint_path(log.checkpoint_path);
}

void ToMessage(const Graph& graph, event::GraphDef* message) {
  for (const GraphNode& node : graph) {
    event::Node* const made = message->add_node();
    made->set_name(node.name);
    made->set_op(node.op);
    made->set_device(node.device);
    for (const std::string& input : node.inputs) made->add_input(input);
    if (!node.shape) continue;
    auto& attributes = *made->mutable_attr();
    attributes["dtype"].set_type(static_cast<int>(node.type));
    ToMessage(*node.shape, attributes["shape"].mutable_shape());
    // What is written at the edges that leave it.
    ToMessage(*node.shape, attributes["_output_shapes"].mutable_list()->add_shape());
  }
}

// As the text form of messages writes it: printable ASCII as it is, all else in octal digits.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c >= ' ' && c <= '~') {
      quoted += c;
    } else {
      quoted += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
    }
  }
  return quoted + '"';
}

const char* TypeName(GraphNode::Type type) {
  switch (type) {
    case GraphNode::Type::kFloat:
      break;
    case GraphNode::Type::kInt64:
      return "DT_INT64";
    case GraphNode::Type::kBool:
      return "DT_BOOL";
  }
  return "DT_FLOAT";
}

}  // namespace

Result<std::string> EncodeEvent(const Event& event, std::vector<std::string>* left_out) {
  event::Event message;
  message.set_wall_time(event.wall_time);
  message.set_step(event.step);
  if (std::holds_alternative<FileVersion>(event.what)) {
    message.set_file_version("brain.Event:2");
  } else if (const auto* const summary = std::get_if<Summary>(&event.what)) {
    PASSEL_RETURN_IF_ERROR(ToMessage(*summary, message.mutable_summary(), left_out));
  } else if (const auto* const log = std::get_if<SessionLog>(&event.what)) {
    ToMessage(*log, message.mutable_session_log());
  } else {
    event::GraphDef graph;
    ToMessage(std::get<Graph>(event.what), &graph);
    graph.SerializeToString(message.mutable_graph_def());
  }
  return message.SerializeAsString();
}

std::string GraphText(const Graph& graph) {
  std::string text;
  for (const GraphNode& node : graph) {
    text += fmt::format("node {{\n  name: {}\n  op: {}\n", Quoted(node.name), Quoted(node.op));
    for (const std::string& input : node.inputs)
      text += fmt::format("  input: {}\n", Quoted(input));
    if (!node.device.empty()) text += fmt::format("  device: {}\n", Quoted(node.device));
    if (node.shape) {
      text += fmt::format("  attr {{\n    key: \"dtype\"\n    value {{ type: {} }}\n  }}\n",
                          TypeName(node.type));
      text += "  attr {\n    key: \"shape\"\n    value {\n      shape {\n";
      for (const std::int64_t size : *node.shape) {
        text += fmt::format("        dim {{ size: {} }}\n", size);
      }
      text += "      }\n    }\n  }\n";
    }
    text += "}\n";
  }
  return text;
}

}  // namespace passel

// event.h - what an event file of TensorBoard tells: scalars, histograms, texts, a picture of the
// model, and when a training began, saved and stopped.
//
// Thread safety: the functions share nothing.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace passel {

/// One value of a summary, shown under its tag.
struct SummaryValue {
  std::string tag;
  /// A scalar (NaN and infinities are shown as such); the elements of a tensor, which become a
  /// histogram; a text in Markdown.
  std::variant<double, std::vector<float>, std::string> value;
};
using Summary = std::vector<SummaryValue>;

struct SessionLog {
  enum class Status { kStart = 1, kStop = 2, kCheckpoint = 3 };
  Status status = Status::kStart;
  std::string checkpoint_path{};  ///< kCheckpoint
};

/// A node of the picture of a model: a variable, a layer, a loss.
struct GraphNode {
  /// TensorFlow's numbers of types.
  enum class Type { kFloat = 1, kInt64 = 9, kBool = 10 };
  std::string name;  ///< "hid/MatMul"; nodes whose names begin alike up to a slash are one box
  std::string op;    ///< "MatMul"
  std::string device{};
  std::vector<std::string> inputs{};  ///< names of nodes
  /// Of what it gives: -1 for a dimension that may have any size. None: not a tensor.
  std::optional<std::vector<std::int64_t>> shape{};
  Type type = Type::kFloat;  ///< of what it gives
};
using Graph = std::vector<GraphNode>;

/// What the first record says.
struct FileVersion {};

struct Event {
  double wall_time = 0;  ///< seconds since 1970
  std::int64_t step = 0;
  std::variant<FileVersion, Summary, SessionLog, Graph> what;
};

/// The data of its record. Of a histogram that has a NaN or an infinity the rest of the summary is
/// encoded all the same, and a sentence is added to `left_out`.
/// Errors: kInvalidArgument for a tag that is there twice.
Result<std::string> EncodeEvent(const Event& event, std::vector<std::string>* left_out);

/// The graph as text, one field a line: what TensorFlow's programs call graph.pbtxt.
std::string GraphText(const Graph& graph);

}  // namespace passel

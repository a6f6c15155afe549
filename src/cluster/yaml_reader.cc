#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "cluster/text.h"
#include "cluster/yaml_reader_internal.h"

namespace passel {
namespace {

YamlPlace PlaceOf(const yaml_mark_t& mark) {
  return {static_cast<int>(mark.line) + 1, static_cast<int>(mark.column) + 1};
}

Status OutOfMemory() {
  return ResourceExhausted("the YAML reader may not allocate memory: free some");
}

}  // namespace

YamlPlace YamlEvent::place() const { return PlaceOf(event_.start_mark); }

std::string_view YamlEvent::Kind() const {
  switch (type()) {
    case YAML_SCALAR_EVENT:
      return "a single value";
    case YAML_SEQUENCE_START_EVENT:
      return "a list";
    case YAML_MAPPING_START_EVENT:
      return "a section";
    default:
      return "nothing";
  }
}

YamlReader::YamlReader(std::string path, std::string_view text)
    : path_(std::move(path)), text_(text) {
  ready_ = yaml_parser_initialize(&parser_) != 0;
  if (!ready_) return;
  yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text_.data()),
                               text_.size());
}

YamlReader::~YamlReader() {
  if (ready_) yaml_parser_delete(&parser_);
}

Status YamlReader::Problem(YamlPlace place, std::string_view sentence) const {
  return InvalidArgument(
      fmt::format("{}:{}:{}: {}", Printable(path_, 256), place.line, place.column, sentence));
}

Status YamlReader::Next() {
  if (!ready_) return OutOfMemory();
  yaml_event_delete(&event_.event_);
  if (yaml_parser_parse(&parser_, &event_.event_) == 0) return SyntaxProblem();
  const yaml_event_t& raw = event_.event_;
  const yaml_char_t* anchor = nullptr;
  const yaml_char_t* tag = nullptr;
  if (raw.type == YAML_ALIAS_EVENT) {
    return Problem(event_.place(), "aliases (*name) are not accepted: write the value again");
  }
  if (raw.type == YAML_SCALAR_EVENT) {
    anchor = raw.data.scalar.anchor;
    tag = raw.data.scalar.tag;
  } else if (raw.type == YAML_SEQUENCE_START_EVENT) {
    anchor = raw.data.sequence_start.anchor;
    tag = raw.data.sequence_start.tag;
  } else if (raw.type == YAML_MAPPING_START_EVENT) {
    anchor = raw.data.mapping_start.anchor;
    tag = raw.data.mapping_start.tag;
  }
  if (anchor) {
    return Problem(event_.place(), "anchors (&name) are not accepted: write the value alone");
  }
  if (tag) return Problem(event_.place(), "tags (!name) are not accepted: write the value alone");
  return {};
}

Status YamlReader::SyntaxProblem() const {
  if (parser_.error == YAML_MEMORY_ERROR) {
    return OutOfMemory();
  }
  YamlPlace place = PlaceOf(parser_.problem_mark);
  if (parser_.error == YAML_READER_ERROR) {
    // Only the offset of a wrong byte is known.
    const std::string_view before = text_.substr(0, parser_.problem_offset);
    const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
    const auto is_first_byte = [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; };
    place.line = 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n'));
    place.column = 1 + static_cast<int>(
                           std::count_if(before.begin() + line_start, before.end(), is_first_byte));
  }
  const std::string_view problem = parser_.problem ? parser_.problem : "wrong syntax";
  const std::string_view context = parser_.context ? parser_.context : "";
  return Problem(place, fmt::format("{}{}{}: correct the YAML or JSON", Printable(context, 128),
                                    context.empty() ? "" : ", ", Printable(problem, 128)));
}

}  // namespace passel

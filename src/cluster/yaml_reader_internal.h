// yaml_reader_internal.h - the events of one YAML document that is nothing but scalars, lists and
// mappings. For the .cc files of this folder: it includes libyaml.
//
// Why events and not a tree: an anchor, an alias or a tag is refused where it stands, before it can
// multiply anything.
//
// Thread safety: none; one reader per thread.

#pragma once

#include <yaml.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace passel {

/// Counted from 1, columns in characters.
struct YamlPlace {
  int line = 1;
  int column = 1;
};

/// One event. Owned by its reader, which overwrites it.
class YamlEvent {
 public:
  YamlEvent() = default;
  ~YamlEvent() { yaml_event_delete(&event_); }
  YamlEvent(const YamlEvent&) = delete;
  YamlEvent& operator=(const YamlEvent&) = delete;

  yaml_event_type_t type() const { return event_.type; }
  YamlPlace place() const;
  /// "a single value", "a list", "a section" or "nothing".
  std::string_view Kind() const;
  bool is_scalar() const { return event_.type == YAML_SCALAR_EVENT; }
  /// REQUIRES: is_scalar(), for the rest.
  std::string_view text() const {
    return {reinterpret_cast<const char*>(event_.data.scalar.value), event_.data.scalar.length};
  }
  bool plain() const { return event_.data.scalar.style == YAML_PLAIN_SCALAR_STYLE; }
  bool is_null() const { return plain() && (text().empty() || text() == "~" || text() == "null"); }

 private:
  friend class YamlReader;
  yaml_event_t event_{};
};

class YamlReader {
 public:
  /// `text` must outlive the reader; `path` is for messages.
  YamlReader(std::string path, std::string_view text);
  ~YamlReader();
  YamlReader(const YamlReader&) = delete;
  YamlReader& operator=(const YamlReader&) = delete;

  /// Goes on to the next event. Not to be called after an error or the end of the stream.
  /// Errors: kInvalidArgument: wrong syntax or UTF-8, an anchor, an alias, a tag;
  /// kResourceExhausted: no memory.
  Status Next();
  const YamlEvent& event() const { return event_; }

  /// kInvalidArgument, "path:line:column: sentence".
  Status Problem(YamlPlace place, std::string_view sentence) const;

 private:
  Status SyntaxProblem() const;

  std::string path_;
  std::string_view text_;
  yaml_parser_t parser_{};
  bool ready_ = false;
  YamlEvent event_;
};

}  // namespace passel

#include "cluster/config_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/file.h"
#include "cluster/cluster_spec.h"
#include "cluster/text.h"
#include "cluster/yaml_reader_internal.h"

namespace passel {
namespace {

class Parser {
 public:
  Parser(std::string_view path, std::string_view text, std::span<const FileFlag> known)
      : known_(known.begin(), known.end()), reader_(std::string(path), text) {
    file_.path = path;
    for (const char* name : {"job_name", "task_index"}) AddKnown(name, FlagType::kText);
    for (const char* name : {"ps_hosts", "worker_hosts"}) AddKnown(name, FlagType::kList);
  }

  Status Parse() {
    PASSEL_RETURN_IF_ERROR(Next());  // start of the stream
    PASSEL_RETURN_IF_ERROR(Next());
    if (event_.type() == YAML_STREAM_END_EVENT) return {};
    PASSEL_RETURN_IF_ERROR(Next());  // after the start of the document
    if (event_.type() == YAML_MAPPING_START_EVENT) {
      PASSEL_RETURN_IF_ERROR(ParseTop());
    } else if (!event_.is_scalar() || !event_.is_null()) {
      return Problem(
          event_.place(),
          fmt::format("the file holds {}: write lines of the form name: value", event_.Kind()));
    }
    PASSEL_RETURN_IF_ERROR(Next());  // end of the document
    PASSEL_RETURN_IF_ERROR(Next());
    if (event_.type() == YAML_STREAM_END_EVENT) return {};
    return Problem(event_.place(), "a second document begins here: keep one in a file");
  }

  ConfigFile Take() { return std::move(file_); }

 private:
  using Place = YamlPlace;

  void AddKnown(const char* name, FlagType type) {
    std::erase_if(known_, [&](const FileFlag& flag) { return flag.name == name; });
    known_.push_back({name, type});
  }

  Status Next() { return reader_.Next(); }
  Status Problem(Place place, std::string_view sentence) const {
    return reader_.Problem(place, sentence);
  }

  /// Reads the key of an entry; false at the end of the mapping.
  Result<bool> NextKey(Place* place, std::string* key) {
    PASSEL_RETURN_IF_ERROR(Next());
    if (event_.type() == YAML_MAPPING_END_EVENT) return false;
    *place = event_.place();
    if (!event_.is_scalar()) {
      return Problem(
          *place, fmt::format("{} stands where a name belongs: write name: value", event_.Kind()));
    }
    if (event_.plain() && event_.text() == "<<") {
      return Problem(*place, "merge keys (<<) are not accepted: write the values out");
    }
    *key = event_.text();
    return true;
  }

  Status ParseTop() {
    std::string key;
    for (Place place;;) {
      PASSEL_ASSIGN_OR_RETURN(const bool more, NextKey(&place, &key));
      if (!more) return {};
      if (key == "cluster") {
        PASSEL_RETURN_IF_ERROR(ParseSection(place, key, &seen_cluster_, &Parser::ParseJob));
      } else if (key == "task") {
        PASSEL_RETURN_IF_ERROR(ParseSection(place, key, &seen_task_, &Parser::ParseTaskEntry));
      } else {
        PASSEL_RETURN_IF_ERROR(ParseFlag(place, key));
      }
    }
  }

  Status ParseSection(Place place, const std::string& name, std::optional<Place>* seen,
                      Status (Parser::*entry)(Place, const std::string&)) {
    if (*seen) return Twice(place, fmt::format("the section \"{}\"", name), **seen);
    *seen = place;
    PASSEL_RETURN_IF_ERROR(Next());
    if (event_.type() != YAML_MAPPING_START_EVENT) {
      return Problem(event_.place(),
                     fmt::format("\"{0}\" is a section, but holds {1}: write for example {2}", name,
                                 event_.Kind(),
                                 name == "task" ? "task: {type: worker, index: 0}"
                                                : "cluster: {ps: [host:1], worker: [host:2]}"));
    }
    std::string key;
    for (Place at;;) {
      PASSEL_ASSIGN_OR_RETURN(const bool more, NextKey(&at, &key));
      if (!more) return {};
      PASSEL_RETURN_IF_ERROR((this->*entry)(at, key));
    }
  }

  Status Twice(Place place, std::string_view what, Place first) const {
    return Problem(
        place, fmt::format("{} is given twice, first in line {}: remove one", what, first.line));
  }

  Status Store(std::map<std::string, FileValue, std::less<>>* values, Place place,
               const std::string& name, std::string text) {
    const auto [entry, is_new] =
        values->emplace(name, FileValue{std::move(text), place.line, place.column});
    if (is_new) return {};
    return Twice(place, fmt::format("\"{}\"", name), {entry->second.line, entry->second.column});
  }

  Status ParseFlag(Place place, const std::string& name) {
    const auto flag = std::find_if(known_.begin(), known_.end(),
                                   [&](const FileFlag& known) { return known.name == name; });
    if (flag == known_.end()) return Unknown(place, name);
    PASSEL_RETURN_IF_ERROR(Next());
    if (name == "ps_hosts" || name == "worker_hosts") {
      PASSEL_ASSIGN_OR_RETURN(std::string hosts, ParseHosts(name));
      return Store(&file_.values, place, name, std::move(hosts));
    }
    if (name == "task_index") return ParseTaskIndex(place);
    if (flag->type == FlagType::kList && event_.type() == YAML_SEQUENCE_START_EVENT) {
      std::string joined;
      PASSEL_RETURN_IF_ERROR(Next());
      for (; event_.type() != YAML_SEQUENCE_END_EVENT;) {
        if (!event_.is_scalar()) {
          return Problem(event_.place(),
                         fmt::format("an element of \"{}\" is a single value, not {}: write {}: "
                                     "[value, value]",
                                     name, event_.Kind(), name));
        }
        PASSEL_RETURN_IF_ERROR(CheckText(name));
        if (event_.text().find(',') != std::string_view::npos) {
          return Problem(event_.place(),
                         fmt::format("an element of \"{}\" has a comma: write two elements", name));
        }
        if (!joined.empty()) joined += ',';
        joined += event_.text();
        PASSEL_RETURN_IF_ERROR(Next());
      }
      return Store(&file_.values, place, name, std::move(joined));
    }
    PASSEL_RETURN_IF_ERROR(CheckText(name));
    PASSEL_RETURN_IF_ERROR(CheckType(name, flag->type));
    return Store(&file_.values, place, name, std::string(event_.text()));
  }

  Status Unknown(Place place, const std::string& name) const {
    std::vector<std::string> names{"cluster", "task"};
    for (const FileFlag& flag : known_) names.push_back(flag.name);
    const std::string_view nearest = NearestName(name, names);
    return Problem(place,
                   fmt::format("the setting {} is not known: {}", Quoted(name),
                               nearest.empty() ? "use the names of the flags, without dashes"
                                               : fmt::format("did you mean {}?", Quoted(nearest))));
  }

  /// The event is a scalar that can be handed on as text.
  Status CheckText(std::string_view name) const {
    if (!event_.is_scalar()) {
      return Problem(event_.place(), fmt::format("\"{}\" takes a single value, not {}: write {}: "
                                                 "value",
                                                 name, event_.Kind(), name));
    }
    if (event_.is_null()) {
      return Problem(event_.place(),
                     fmt::format("\"{}\" has no value: write one, or \"\" for empty text", name));
    }
    const auto is_control = [](char c) { return (c >= 0 && c < 0x20) || c == 0x7F; };
    const std::string_view text = event_.text();
    if (std::any_of(text.begin(), text.end(), is_control)) {
      return Problem(event_.place(),
                     fmt::format("the value of \"{}\" has a control character: remove it", name));
    }
    return {};
  }

  /// REQUIRES: CheckText() was OK.
  Status CheckType(std::string_view name, FlagType type) const {
    const std::string_view text = event_.text();
    const char* const end = text.data() + text.size();
    std::string_view wanted;
    switch (type) {
      case FlagType::kText:
      case FlagType::kList:
        return {};
      case FlagType::kBool:
        if (event_.plain() && (text == "true" || text == "false")) return {};
        wanted = "true or false";
        break;
      case FlagType::kInteger: {
        std::int64_t whole = 0;
        std::uint64_t large = 0;
        const auto as_signed = std::from_chars(text.data(), end, whole);
        const auto as_unsigned = std::from_chars(text.data(), end, large);
        const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
        const bool octal = digits.size() > 1 && digits[0] == '0';  // to whoever reads the flag
        const bool good = (as_signed.ec == std::errc() && as_signed.ptr == end) ||
                          (as_unsigned.ec == std::errc() && as_unsigned.ptr == end);
        if (event_.plain() && good && !octal) return {};
        wanted = good && octal ? "an integer without zeros before it" : "an integer such as 100";
        break;
      }
      case FlagType::kNumber: {
        double number = 0;
        const auto parsed = std::from_chars(text.data(), end, number);
        const bool good = parsed.ec == std::errc() && parsed.ptr == end && std::isfinite(number);
        if (event_.plain() && good) return {};
        wanted = "a number such as 0.01";
        break;
      }
    }
    return Problem(
        event_.place(),
        fmt::format("\"{}\" must be {}, without quotes, not {}", name, wanted,
                    event_.plain() ? Quoted(text) : fmt::format("the text {}", Quoted(text))));
  }

  Result<std::string> ParseAddress() const {
    if (!event_.is_scalar()) {
      return Problem(event_.place(),
                     fmt::format("an address is expected, not {}: write host:port", event_.Kind()));
    }
    const Result<HostPort> address = ParseHostPort(event_.text());
    if (!address.ok()) return Problem(event_.place(), address.status().message());
    return address->ToString();
  }

  /// A list, a mapping from indices without gaps, or "host:port,host:port", from the event on.
  Result<std::string> ParseHosts(const std::string& name) {
    std::map<int, std::string> hosts;
    const Place place = event_.place();
    if (event_.type() == YAML_SEQUENCE_START_EVENT) {
      for (int i = 0;; ++i) {
        PASSEL_RETURN_IF_ERROR(Next());
        if (event_.type() == YAML_SEQUENCE_END_EVENT) break;
        PASSEL_ASSIGN_OR_RETURN(hosts[i], ParseAddress());
      }
    } else if (event_.type() == YAML_MAPPING_START_EVENT) {
      std::string key;
      for (Place at;;) {
        PASSEL_ASSIGN_OR_RETURN(const bool more, NextKey(&at, &key));
        if (!more) break;
        const std::optional<int> index = ParseDecimal(key, ClusterSpec::kMaxTaskIndex);
        if (!index) {
          return Problem(at, fmt::format("{} is not a task index: use 0 to {}", Quoted(key),
                                         ClusterSpec::kMaxTaskIndex));
        }
        PASSEL_RETURN_IF_ERROR(Next());
        PASSEL_ASSIGN_OR_RETURN(std::string host, ParseAddress());
        if (!hosts.emplace(*index, std::move(host)).second) {
          return Problem(at,
                         fmt::format("task {} of \"{}\" is given twice: remove one", *index, name));
        }
      }
      if (!hosts.empty() && hosts.rbegin()->first >= static_cast<int>(hosts.size())) {
        return Problem(place,
                       fmt::format("\"{}\" has {} tasks but the last has index {}: number "
                                   "them from 0 to {}",
                                   name, hosts.size(), hosts.rbegin()->first, hosts.size() - 1));
      }
    } else {
      PASSEL_RETURN_IF_ERROR(CheckText(name));
      if (event_.text().empty()) return std::string();
      const Result<std::vector<HostPort>> list = ParseHostList(event_.text());
      if (!list.ok()) return Problem(place, list.status().message());
      for (const HostPort& host : *list) {
        hosts.emplace(static_cast<int>(hosts.size()), host.ToString());
      }
    }
    std::string joined;
    for (const auto& [index, host] : hosts) {
      if (index > 0) joined += ',';
      joined += host;
    }
    return joined;
  }

  Status ParseJob(Place place, const std::string& job) {
    PASSEL_RETURN_IF_ERROR(Next());
    if (job == "ps" || job == "worker") {
      const std::string name = job + "_hosts";
      PASSEL_ASSIGN_OR_RETURN(std::string hosts, ParseHosts(name));
      return Store(&file_.values, place, name, std::move(hosts));
    }
    if (job != "chief" && job != "master" && job != "evaluator") {
      return Problem(place, fmt::format("{} is not a job of the cluster: use ps, worker, chief, "
                                        "master or evaluator",
                                        Quoted(job)));
    }
    const Place value = event_.place();
    PASSEL_ASSIGN_OR_RETURN(std::string hosts, ParseHosts(job));
    if (hosts.empty() || hosts.find(',') != std::string::npos) {
      return Problem(value, fmt::format("the job \"{}\" takes exactly one address", job));
    }
    return Store(&file_.single_tasks, place, job, std::move(hosts));
  }

  Status ParseTaskEntry(Place place, const std::string& key) {
    PASSEL_RETURN_IF_ERROR(Next());
    if (key == "index") return ParseTaskIndex(place);
    if (key != "type") {
      return Problem(place, fmt::format("{} is not known in the section \"task\": use type and "
                                        "index",
                                        Quoted(key)));
    }
    PASSEL_RETURN_IF_ERROR(CheckText("task.type"));
    return Store(&file_.values, place, "job_name", std::string(event_.text()));
  }

  Status ParseTaskIndex(Place place) {
    PASSEL_RETURN_IF_ERROR(CheckText("task_index"));
    if (!ParseDecimal(event_.text(), ClusterSpec::kMaxTaskIndex)) {
      return Problem(event_.place(),
                     fmt::format("the task index must be an integer from 0 to {}, not {}",
                                 ClusterSpec::kMaxTaskIndex, Quoted(event_.text())));
    }
    return Store(&file_.values, place, "task_index", std::string(event_.text()));
  }

  std::vector<FileFlag> known_;
  YamlReader reader_;
  const YamlEvent& event_ = reader_.event();
  ConfigFile file_;
  std::optional<Place> seen_cluster_, seen_task_;
};

}  // namespace

Result<std::string> ReadConfigFile(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::uint8_t> bytes,
                          ReadFile(path, kMaxConfigFileBytes));
  return std::string(bytes.begin(), bytes.end());
}

Result<ConfigFile> ParseConfigFile(std::string_view path, std::string_view text,
                                   std::span<const FileFlag> known) {
  if (text.size() > kMaxConfigFileBytes) {
    return ResourceExhausted(
        fmt::format("{} has {} bytes, more than the {} bytes allowed here: name a smaller file",
                    Printable(path, 256), text.size(), kMaxConfigFileBytes));
  }
  Parser parser(path, text, known);
  PASSEL_RETURN_IF_ERROR(parser.Parse());
  return parser.Take();
}

}  // namespace passel

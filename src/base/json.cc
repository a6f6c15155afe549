#include "base/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/text.h"

namespace passel {
namespace {

using Library = nlohmann::json;

/// Builds the document without recursion and stops at the first duplicate key or excessive depth.
class DocumentBuilder final : public Library::json_sax_t {
 public:
  DocumentBuilder(std::string_view what, int depth_needed)
      : what_(what), depth_needed_(depth_needed) {}

  Json root;
  Status status;

  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(Json::WithSign(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t&) override { return Put(value); }
  bool string(string_t& value) override { return Put(value); }
  bool binary(binary_t&) override { return false; }  // not in JSON text
  bool start_object(std::size_t) override { return Begin(Json::MakeObject()); }
  bool end_object() override { return End(); }
  bool start_array(std::size_t) override { return Begin(Json::MakeList()); }
  bool end_array() override { return End(); }

  bool key(string_t& name) override {
    if (!open_.back().names.insert(name).second) {
      status = InvalidArgument(
          fmt::format("{} has the key {} twice in one object: remove one", what_, Quoted(name)));
      return false;
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const Library::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    std::string_view what = error.what();
    if (const std::size_t end = what.find("] "); end != std::string_view::npos) {
      what.remove_prefix(end + 2);
    }
    status = InvalidArgument(
        fmt::format("{} is not JSON: at byte {}: {}", what_, position, Printable(what, 200)));
    return false;
  }

 private:
  // An object or a list around the current place.
  struct Open {
    Json* json;
    std::set<std::string> names;  // of the members so far
  };

  Json* Place(Json value) {
    if (open_.empty()) {
      root = std::move(value);
      return &root;
    }
    Json& parent = *open_.back().json;
    if (parent.object() != nullptr) return parent.AddMember(std::move(key_), std::move(value));
    return parent.Add(std::move(value));
  }

  bool Put(Json value) {
    Place(std::move(value));
    return true;
  }

  bool Begin(Json empty) {
    if (open_.size() == kMaxJsonDepth) {
      status = InvalidArgument(fmt::format("{} nests deeper than {} levels: it takes {}", what_,
                                           kMaxJsonDepth, depth_needed_));
      return false;
    }
    // Only finished siblings move when the parent grows, so the pointers of open_ stay valid.
    open_.push_back({Place(std::move(empty)), {}});
    return true;
  }

  bool End() {
    open_.pop_back();
    return true;
  }

  const std::string_view what_;
  const int depth_needed_;
  std::vector<Open> open_;  // outermost first
  std::string key_;
};

// Texts and numbers are written by the library.
class TextWriter {
 public:
  TextWriter(int indent, bool ascii) : indent_(indent), ascii_(ascii) {}

  void Add(const Json& json, int level) {
    if (const Json::Object* const object = json.object()) {
      Elements('{', *object, '}', level, [&](const Json::Member& member) {
        Scalar(member.name);
        text_ += indent_ < 0 ? ":" : ": ";
        Add(member.value, level + 1);
      });
    } else if (const Json::List* const list = json.list()) {
      Elements('[', *list, ']', level, [&](const Json& element) { Add(element, level + 1); });
    } else if (json.text() != nullptr) {
      Scalar(*json.text());
    } else if (const auto truth = json.As<bool>()) {
      Scalar(*truth);
    } else if (const auto positive = json.As<std::uint64_t>()) {
      Scalar(*positive);
    } else if (const auto negative = json.As<std::int64_t>()) {
      Scalar(*negative);
    } else if (const auto number = json.As<double>()) {
      Scalar(*number);
    } else {
      text_ += "null";
    }
  }

  std::string Take() { return std::move(text_); }

 private:
  void Scalar(const Library& value) {
    text_ += value.dump(-1, ' ', ascii_, Library::error_handler_t::replace);
  }

  void NewLine(int level) {
    if (indent_ < 0) return;
    text_ += '\n';
    text_.append(static_cast<std::size_t>(level) * static_cast<std::size_t>(indent_), ' ');
  }

  template <typename Values, typename Put>
  void Elements(char begin, const Values& elements, char end, int level, const Put& put) {
    text_ += begin;
    for (const auto& element : elements) {
      if (&element != &elements.front()) text_ += ',';
      NewLine(level + 1);
      put(element);
    }
    if (!elements.empty()) NewLine(level);
    text_ += end;
  }

  const int indent_;
  const bool ascii_;
  std::string text_;
};

void AddLeaves(const std::string& place, const Json& json,
               std::map<std::string, std::string>* all) {
  if (json.object() != nullptr) {
    for (const auto& [name, value] : *json.object()) AddLeaves(place + "/" + name, value, all);
  } else if (json.list() != nullptr && !json.list()->empty()) {
    int index = 0;
    for (const Json& element : *json.list()) {
      AddLeaves(fmt::format("{}/{}", place, index++), element, all);
    }
  } else {
    (*all)[place] = json.Write();
  }
}

}  // namespace

Json::Json(std::initializer_list<Member> members) : value_(Object(members)) {}

std::string_view Json::type_name() const {
  static constexpr std::string_view kNames[] = {"null",   "boolean", "number", "number",
                                                "number", "string",  "array",  "object"};
  return kNames[value_.index()];
}

const Json* Json::Find(std::string_view name) const {
  if (object() == nullptr) return nullptr;
  const auto found = std::ranges::find(*object(), name, &Member::name);
  return found == object()->end() ? nullptr : &found->value;
}

Json& Json::operator[](std::string_view name) {
  if (const Json* const found = Find(name)) return const_cast<Json&>(*found);
  return *AddMember(std::string(name), Json());
}

Json* Json::AddMember(std::string name, Json value) {
  if (is_null()) value_.emplace<Object>();
  PASSEL_CHECK(object() != nullptr, "members belong to an object");
  Object& members = std::get<Object>(value_);
  members.push_back({std::move(name), std::move(value)});
  return &members.back().value;
}

Json* Json::Add(Json element) {
  if (is_null()) value_.emplace<List>();
  PASSEL_CHECK(list() != nullptr, "elements belong to a list");
  return &std::get<List>(value_).emplace_back(std::move(element));
}

std::string Json::Write(int indent, Charset charset) const {
  TextWriter writer(indent, charset == Charset::kAscii);
  writer.Add(*this, 0);
  return writer.Take();
}

std::map<std::string, std::string> Json::Leaves() const {
  std::map<std::string, std::string> leaves;
  AddLeaves("", *this, &leaves);
  return leaves;
}

Result<Json> ParseJson(std::string_view what, std::string_view text, int depth_needed) {
  // The library takes it for the end.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return InvalidArgument(
        fmt::format("{} is not JSON: it holds a NUL byte, at byte {}", what, nul));
  }
  // The builder returns its errors; what is left to throw is memory that runs out.
  DocumentBuilder document(what, depth_needed);
  if (!Library::sax_parse(text.begin(), text.end(), &document)) {
    if (document.status.ok()) {
      return InvalidArgument(fmt::format("{} is not JSON: correct it", what));
    }
    return document.status;
  }
  return std::move(document.root);
}

std::optional<std::string> QuotedForJson(std::string_view text) {
  try {
    return Library(text).dump();
  } catch (const Library::type_error&) {
    return std::nullopt;
  }
}

}  // namespace passel

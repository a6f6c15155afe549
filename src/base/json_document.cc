#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

#include "base/json_document_internal.h"
#include "base/text.h"

namespace passel {
namespace {

using Json = nlohmann::json;

/// Builds the document without recursion and stops at the first duplicate key or excessive depth.
class DocumentBuilder final : public Json::json_sax_t {
 public:
  DocumentBuilder(std::string_view what, int depth_needed)
      : what_(what), depth_needed_(depth_needed) {}

  Json root;
  Status status;

  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t&) override { return Put(value); }
  bool string(string_t& value) override { return Put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not in JSON text
  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    if (open_.back()->contains(name)) {
      status = InvalidArgument(
          fmt::format("{} has the key {} twice in one object: remove one", what_, Quoted(name)));
      return false;
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const Json::exception& error) override {
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
  Json* Place(Json value) {
    if (open_.empty()) {
      root = std::move(value);
      return &root;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }

  bool Put(Json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(Json empty) {
    if (open_.size() == kMaxJsonDepth) {
      status = InvalidArgument(fmt::format("{} nests deeper than {} levels: it takes {}", what_,
                                           kMaxJsonDepth, depth_needed_));
      return false;
    }
    // Only finished siblings move when the parent grows, so the pointers of open_ stay valid.
    open_.push_back(Place(std::move(empty)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const std::string_view what_;
  const int depth_needed_;
  std::vector<Json*> open_;  // the objects and arrays around the current place, outermost first
  std::string key_;
};

}  // namespace

Result<Json> ParseJsonDocument(std::string_view what, std::string_view text, int depth_needed) {
  // The builder returns its errors; what is left to throw is memory that runs out.
  DocumentBuilder document(what, depth_needed);
  if (!Json::sax_parse(text.begin(), text.end(), &document)) {
    if (document.status.ok()) {
      return InvalidArgument(fmt::format("{} is not JSON: correct it", what));
    }
    return document.status;
  }
  return std::move(document.root);
}

}  // namespace passel

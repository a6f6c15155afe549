// json.h - JSON as a tree: read without recursion and without mercy, written in the order in which
// it was made. The members of an object are read and written by name with base/json_fields.h.
//
// Thread safety: values; const calls may run concurrently.

#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace passel {

class Json;
template <typename T>
concept JsonNumber = std::is_arithmetic_v<T>;
template <typename T>
concept JsonText = std::convertible_to<const T&, std::string_view>;
/// What has elements that become JSON.
template <typename R>
concept JsonRange = std::ranges::input_range<const R> && !JsonText<R> &&
                    std::convertible_to<std::ranges::range_reference_t<const R>, Json>;

/// One value of any type. What becomes one converts to it: {{"name", text}, {"sizes", vector}} is
/// an object with two members.
class Json {
 public:
  struct Member;
  using List = std::vector<Json>;
  using Object = std::vector<Member>;  ///< no name twice

  Json();  ///< null
  Json(std::nullptr_t);
  template <JsonNumber T>
  Json(T value);
  template <JsonText T>
  Json(const T& text);
  Json(List list);
  Json(std::initializer_list<Member> members);
  /// Null for nothing.
  template <typename T>
  Json(const std::optional<T>& value);
  /// A list of all elements.
  template <JsonRange R>
  Json(const R& range);

  static Json MakeObject();
  /// A number that was written with a sign: none of the unsigned integers, and be it -0.
  static Json WithSign(std::int64_t number);
  template <typename... Values>
  static Json MakeList(const Values&... values) {
    return List{Json(values)...};
  }

  /// Null unless it is one.
  const std::string* text() const { return std::get_if<std::string>(&value_); }
  const List* list() const { return std::get_if<List>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  /// "null", "boolean", "number", "string", "array" or "object".
  std::string_view type_name() const;
  /// The value as a bool, std::string, double (of any number) or an integer that it fits in, which
  /// is signed for a number with a sign.
  template <typename T>
  std::optional<T> As() const;
  /// The member of that name. Null: there is none, or this is no object.
  const Json* Find(std::string_view name) const;

  /// The member of that name, which is null if it was not there. REQUIRES: an object, or null,
  /// which becomes one.
  Json& operator[](std::string_view name);
  /// Return what was added, valid until the next call. REQUIRES: a list, or an object without that
  /// name; or null, which becomes one.
  Json* Add(Json element);
  Json* AddMember(std::string name, Json value);

  enum class Charset { kUtf8, kAscii };
  /// In one line, or with `indent` spaces for each level. What is not UTF-8 in texts is replaced,
  /// and a number that is not finite is null.
  std::string Write(int indent = -1, Charset charset = Charset::kUtf8) const;
  /// Every text, number, bool, null and empty list, written, by its place: "/variables/1/name".
  std::map<std::string, std::string> Leaves() const;

 private:
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, List, Object>
      value_;
};

struct Json::Member {
  std::string name;
  Json value;
};

// Here a Member is complete.
inline Json::Json() = default;
inline Json::Json(std::nullptr_t) {}
inline Json::Json(List list) : value_(std::move(list)) {}
template <JsonNumber T>
Json::Json(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    value_.emplace<bool>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    value_.emplace<double>(value);
  } else if (std::cmp_less(value, 0)) {
    value_.emplace<std::int64_t>(static_cast<std::int64_t>(value));
  } else {
    value_.emplace<std::uint64_t>(static_cast<std::uint64_t>(value));
  }
}
template <JsonText T>
Json::Json(const T& text) : value_(std::in_place_type<std::string>, std::string_view(text)) {}
template <typename T>
Json::Json(const std::optional<T>& value) {
  if (value) *this = Json(*value);
}
template <JsonRange R>
Json::Json(const R& range) : value_(std::in_place_type<List>) {
  for (const auto& element : range) Add(element);
}
inline Json Json::WithSign(std::int64_t number) {
  Json json;
  json.value_ = number;
  return json;
}
inline Json Json::MakeObject() { return Json(std::initializer_list<Member>()); }

template <typename T>
std::optional<T> Json::As() const {
  if constexpr (std::is_floating_point_v<T>) {
    if (const auto* value = std::get_if<double>(&value_)) return static_cast<T>(*value);
    if (const auto* value = std::get_if<std::uint64_t>(&value_)) return static_cast<T>(*value);
    if (const auto* value = std::get_if<std::int64_t>(&value_)) return static_cast<T>(*value);
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    const auto fitting = [](const auto* value) -> std::optional<T> {
      if (value == nullptr || !std::in_range<T>(*value)) return std::nullopt;
      return static_cast<T>(*value);
    };
    if (const auto value = fitting(std::get_if<std::uint64_t>(&value_))) return value;
    if (std::is_signed_v<T>) return fitting(std::get_if<std::int64_t>(&value_));
  } else {
    if (const auto* value = std::get_if<T>(&value_)) return *value;
  }
  return std::nullopt;
}

/// Nesting that any document of ours may have, with room for unknown keys.
inline constexpr std::size_t kMaxJsonDepth = 16;

/// The tree of `text`, the only one. `what` names the document in messages ("TF_CONFIG"),
/// `depth_needed` is what its format takes. The caller has limited the size.
/// Errors: kInvalidArgument: not JSON, with the byte; a key twice in one object; too deep;
/// something behind the end.
Result<Json> ParseJson(std::string_view what, std::string_view text, int depth_needed);

/// `text` as a text of JSON, with quotes. Nothing unless it is UTF-8.
std::optional<std::string> QuotedForJson(std::string_view text);

}  // namespace passel

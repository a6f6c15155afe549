// json_fields.h - the members of JSON objects, read and written by name.
//
// A type that is an object says its members once, for both ways; the function is found by its
// argument:
//
//   void JsonMembers(auto& members, JsonPart<NumaNode> auto& node) {
//     members("index", node.index, 65535);
//     members.IfAny("cores", node.cores);
//   }
//
//   Json json = JsonOf(node);
//   Status status = ReadJson("the file", json, &node);
//
// Members may be numbers, texts, bool, Json, std::optional and std::vector of members, and types
// with a JsonMembers() of their own.
//
// Thread safety: none needed; one reader or writer belongs to one function.

#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace passel {

/// What JsonMembers() of `T` takes: a T to be read, or a const T to be written.
template <typename P, typename T>
concept JsonPart = std::same_as<std::remove_const_t<P>, T>;

/// No limit that the type has not.
inline constexpr std::uint64_t kNoJsonLimit = std::numeric_limits<std::uint64_t>::max();

/// Whether JsonMembers() reads: if constexpr (kReadsJson<decltype(members)>) says what else must
/// be.
template <typename Members>
inline constexpr bool kReadsJson = std::remove_reference_t<Members>::kReads;

template <typename T>
Json JsonOf(const T& value);

/// Makes an object. The limits are for JsonReader.
class JsonWriter {
 public:
  static constexpr bool kReads = false;

  template <typename T>
  void operator()(std::string_view name, const T& value, std::uint64_t = kNoJsonLimit) {
    json_.AddMember(std::string(name), JsonOf(value));
  }
  /// Leaves out what has the value of a new T.
  template <typename T>
  void IfAny(std::string_view name, const T& value, std::uint64_t = kNoJsonLimit) {
    if (!(value == T())) (*this)(name, value);
  }
  /// Writes it in any case, but it may be absent when read.
  template <typename T>
  void OrDefault(std::string_view name, const T& value, std::uint64_t = kNoJsonLimit) {
    (*this)(name, value);
  }
  template <typename T, typename Show, typename Parse>
  void Named(std::string_view name, const T& value, Show show, Parse) {
    (*this)(name, std::string(std::invoke(show, value)));
  }
  Json Take() { return std::move(json_); }

 private:
  Json json_ = Json::MakeObject();
};

template <typename T>
Json JsonOf(const T& value) {
  if constexpr (std::convertible_to<const T&, Json>) {
    return value;
  } else if constexpr (std::ranges::input_range<T>) {
    Json list = Json::MakeList();
    for (const auto& element : value) list.Add(JsonOf(element));
    return list;
  } else {
    JsonWriter writer;
    JsonMembers(writer, value);
    return writer.Take();
  }
}

/// Reads one object. The first thing that is wrong is remembered, and what is left is still asked
/// for, so that all names are known when one is found that is not.
class JsonReader {
 public:
  static constexpr bool kReads = true;

  /// `document` names it in messages; `place` is where in it the object is: "gpus[2]". Both and
  /// `json` outlive the reader.
  JsonReader(std::string_view document, const Json& json, std::string place = "");

  /// The member must be there. `most`: the largest number, the most elements, or the most bytes of
  /// a text, which is then printable ASCII; numbers with a limit begin at 0.
  template <typename T>
  void operator()(std::string_view name, T& value, std::uint64_t most = kNoJsonLimit) {
    if (const Json* const json = Ask(name, /*needed=*/true)) Take(name, *json, value, most);
  }
  /// Leaves `value` alone if there is no such member, or null.
  template <typename T>
  void IfAny(std::string_view name, T& value, std::uint64_t most = kNoJsonLimit) {
    if (const Json* const json = Ask(name, /*needed=*/false)) Take(name, *json, value, most);
  }
  template <typename T>
  void OrDefault(std::string_view name, T& value, std::uint64_t most = kNoJsonLimit) {
    IfAny(name, value, most);
  }
  /// A text that `parse` makes a Result<T> or a std::optional<T> of.
  template <typename T, typename Show, typename Parse>
  void Named(std::string_view name, T& value, Show, Parse parse) {
    std::string text;
    (*this)(name, text);
    if (!ok()) return;
    const auto known = parse(text);
    bool is_known;
    if constexpr (requires { known.ok(); }) {
      is_known = known.ok();
    } else {
      is_known = known.has_value();
    }
    if (!is_known) return RefuseName(name, text);
    value = *known;
  }

  /// What was made of several members.
  template <typename T>
  void Accept(Result<T> made, T& value) {
    if (!made.ok()) return Refuse(made.status().message());
    value = std::move(*made);
  }

  /// The same, of members that have their values already.
  void Check(const Status& status) {
    if (!status.ok()) Refuse(status.message());
  }

  /// Members that nobody asks for are fine: who has written it may be of a newer build.
  void MayHaveOthers() { may_have_others_ = true; }

  /// Notes that something is wrong here, unless something was before.
  void Refuse(std::string_view sentence);
  bool ok() const { return problem_.ok(); }
  /// The first problem. Errors: kInvalidArgument.
  const Status& status() const { return problem_; }
  /// Also kInvalidArgument for a member that nobody asked for, but for MayHaveOthers().
  Status Finish();

 private:
  // Null if it is not there, or null.
  const Json* Ask(std::string_view name, bool needed);
  std::string PlaceOf(std::string_view name) const;
  void RefuseType(std::string_view name, std::string_view wanted);
  void RefuseNumber(std::string_view name, const std::string& limits, const Json& json);
  void RefuseName(std::string_view name, std::string_view text);
  void CheckText(std::string_view name, std::string_view text, std::uint64_t most);
  bool CountFits(std::string_view name, std::size_t count, std::uint64_t most);
  void Absorb(const Status& status) {
    if (problem_.ok()) problem_ = status;
  }

  template <typename T>
  void TakeNumber(std::string_view name, const Json& json, T& value, std::uint64_t most) {
    constexpr T kMost = std::numeric_limits<T>::max();
    const T least = most == kNoJsonLimit ? std::numeric_limits<T>::min() : T(0);
    const T highest = std::cmp_less(most, kMost) ? static_cast<T>(most) : kMost;
    const std::optional<T> number = json.As<T>();
    if (number && *number >= least && *number <= highest) {
      value = *number;
    } else {
      RefuseNumber(name, std::to_string(least) + " to " + std::to_string(highest), json);
    }
  }

  template <typename T>
  void TakeScalar(std::string_view name, const Json& json, T& value, std::string_view wanted) {
    if (std::optional<T> found = json.As<T>()) {
      value = std::move(*found);
    } else {
      RefuseType(name, wanted);
    }
  }

  template <typename T>
  void Take(std::string_view name, const Json& json, std::optional<T>& value, std::uint64_t most) {
    Take(name, json, value.emplace(), most);
  }
  template <typename T>
  void Take(std::string_view name, const Json& json, std::vector<T>& value, std::uint64_t most) {
    const Json::List* const list = json.list();
    if (list == nullptr) return RefuseType(name, "a list");
    if (!CountFits(name, list->size(), most)) return;
    value.clear();
    for (const Json& element : *list) {
      const std::string place = std::string(name) + "[" + std::to_string(value.size()) + "]";
      Take(place, element, value.emplace_back(), kNoJsonLimit);
      if (!ok()) return;
    }
  }
  template <typename T>
  void Take(std::string_view name, const Json& json, T& value, std::uint64_t most) {
    if constexpr (std::is_same_v<T, Json>) {
      value = json;
    } else if constexpr (std::is_same_v<T, bool>) {
      TakeScalar(name, json, value, "true or false");
    } else if constexpr (std::is_integral_v<T>) {
      TakeNumber(name, json, value, most);
    } else if constexpr (std::is_floating_point_v<T>) {
      TakeScalar(name, json, value, "a number");
    } else if constexpr (std::is_same_v<T, std::string>) {
      TakeScalar(name, json, value, "a text");
      CheckText(name, value, most);
    } else {
      JsonReader part(document_, json, PlaceOf(name));
      JsonMembers(part, value);
      Absorb(part.Finish());
    }
  }

  const std::string_view document_;
  const std::string place_;
  const Json& json_;
  std::vector<std::string> asked_;
  Status problem_;
  bool missing_ = false;  // `problem_` is that a member is
  bool may_have_others_ = false;
};

/// Reads all of an object, which has the members of T and no others. Errors: kInvalidArgument.
template <typename T>
Status ReadJson(std::string_view document, const Json& json, T* value) {
  JsonReader reader(document, json);
  JsonMembers(reader, *value);
  return reader.Finish();
}

}  // namespace passel

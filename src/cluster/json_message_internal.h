// json_message_internal.h - what tasks of one host say to each other: JSON objects, each in one
// packet of a socket, with descriptors beside it. For .cc files only: it is a heavy header.
//
// Thread safety: no state.

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/memory_file.h"
#include "base/status.h"
#include "base/unix_socket.h"

namespace passel {

/// Errors: kDataLoss unless `text` is one JSON object, without a key that comes twice.
Result<nlohmann::json> ParseMessage(std::string_view text);

/// A field, if it is there, of the wanted type and in its range.
template <typename T>
std::optional<T> FieldIfAny(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return std::nullopt;
  if constexpr (std::is_same_v<T, bool>) {
    if (found->is_boolean()) return found->template get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    if (found->is_number_unsigned()) {
      const auto value = found->template get<std::uint64_t>();
      if (std::in_range<T>(value)) return static_cast<T>(value);
    } else if (found->is_number_integer()) {
      const auto value = found->template get<std::int64_t>();
      if (std::in_range<T>(value)) return static_cast<T>(value);
    }
  } else if (found->is_string()) {
    return found->template get<std::string>();
  }
  return std::nullopt;
}

/// The same, or `fallback`.
template <typename T>
T Field(const nlohmann::json& json, const char* key, T fallback) {
  return FieldIfAny<T>(json, key).value_or(std::move(fallback));
}

/// An error on its way to the peer.
nlohmann::json ErrorJson(const Status& status);
/// The error that the peer sent, if it sent one.
Status ErrorOf(const nlohmann::json& json);

struct JsonMessage {
  nlohmann::json json;  ///< an object
  std::string text;     ///< as it was sent
  std::vector<FileDescriptor> fds;
};

/// Errors: kResourceExhausted above kMaxMessageBytes; as SendMessage().
Status SendText(int fd, const std::string& text, std::span<const int> fds, Deadline deadline);
Status SendJson(int fd, const nlohmann::json& json, std::span<const int> fds, Deadline deadline);
/// Errors: kDataLoss for what is no JSON object; as ReceiveMessage().
Result<JsonMessage> ReceiveJson(int fd, Deadline deadline);

/// One request and its answer.
struct Exchange {
  nlohmann::json request;
  std::vector<FileDescriptor> request_fds;
  nlohmann::json answer = {{"ok", true}};
  std::vector<int> fds;               ///< that go with the answer
  std::vector<FileDescriptor> owned;  ///< closed behind the answer
  bool waits = false;                 ///< for a descriptor, which is the answer once it is there

  void Add(FileDescriptor fd) {
    fds.push_back(fd.get());
    owned.push_back(std::move(fd));
  }
  /// That may be too long for a message.
  Status AddText(const char* name, const std::string& text) {
    PASSEL_ASSIGN_OR_RETURN(FileDescriptor fd, CreateConstantFile(name, text.data(), text.size()));
    Add(std::move(fd));
    return {};
  }
};

}  // namespace passel

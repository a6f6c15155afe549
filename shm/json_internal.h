// json_internal.h - JSON objects over a packet socket. For .cc files only: it is a heavy header.

#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_file.h"
#include "base/unix_socket.h"
#include "cluster/worker_names.h"
#include "shm/arena.h"

namespace passel::shm {

inline Status SendJson(int fd, const nlohmann::json& json, std::span<const int> fds,
                       Deadline deadline) {
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMaxMessageBytes) {
    return ResourceExhausted(fmt::format("a message has at most {} bytes, this one has {}",
                                         kMaxMessageBytes, text.size()));
  }
  return SendMessage(fd, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, fds,
                     deadline);
}

struct JsonMessage {
  nlohmann::json json;  // an object
  std::string text;     // as it was sent
  std::vector<FileDescriptor> fds;
};

inline Result<JsonMessage> ReceiveJson(int fd, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(Message raw, ReceiveMessage(fd, deadline));
  JsonMessage message;
  message.text.assign(raw.bytes.begin(), raw.bytes.end());
  message.json = nlohmann::json::parse(message.text, nullptr, /*allow_exceptions=*/false);
  if (!message.json.is_object()) return DataLoss("a message is not a JSON object");
  message.fds = std::move(raw.fds);
  return message;
}

/// One request and its answer.
struct Exchange {
  JsonMessage request;
  nlohmann::json answer = {{"ok", true}};
  std::vector<int> fds;               ///< that go with the answer
  std::vector<FileDescriptor> owned;  ///< closed behind the answer
  bool waits_for_arena = false;       ///< the answer is the arena, once it is there

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

/// A field of the wanted type and in its range, or `fallback`.
template <typename T>
T Field(const nlohmann::json& json, const char* key, T fallback) {
  const auto found = json.find(key);
  if (found == json.end()) return fallback;
  if constexpr (std::is_same_v<T, bool>) {
    return found->is_boolean() ? found->template get<bool>() : fallback;
  } else if constexpr (std::is_integral_v<T>) {
    if (found->is_number_unsigned()) {
      const auto value = found->template get<std::uint64_t>();
      return std::in_range<T>(value) ? static_cast<T>(value) : fallback;
    }
    if (!found->is_number_integer()) return fallback;
    const auto value = found->template get<std::int64_t>();
    return std::in_range<T>(value) ? static_cast<T>(value) : fallback;
  } else {
    return found->is_string() ? found->template get<std::string>() : fallback;
  }
}

inline nlohmann::json ErrorJson(const Status& status) {
  return {{"error", static_cast<int>(status.code())}, {"message", status.message()}};
}

/// The error that the peer sent, if it sent one.
inline Status ErrorOf(const nlohmann::json& json) {
  if (!json.contains("error")) return {};
  int code = Field<int>(json, "error", static_cast<int>(Code::kInternal));
  if (code <= 0 || code > static_cast<int>(Code::kDiverged))
    code = static_cast<int>(Code::kInternal);
  return Status(static_cast<Code>(code), Field<std::string>(json, "message", "unknown error"));
}

}  // namespace passel::shm

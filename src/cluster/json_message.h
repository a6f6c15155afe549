// json_message.h - what tasks of one host say to each other: JSON objects, each in one packet of a
// socket, with descriptors beside it.
//
// What is there must be of its type and in its range, in requests and in answers. An answer may say
// more than its reader asks for; a request may not.
//
// Thread safety: no state.

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/json_fields.h"
#include "base/memory_file.h"
#include "base/status.h"
#include "base/unix_socket.h"

namespace passel {

/// Errors: kDataLoss unless `text` is one JSON object, without a key that comes twice.
Result<Json> ParseMessage(std::string_view text);

/// The members of a message. Its status becomes kDataLoss by AsDataLoss().
inline JsonReader ReadMessage(const Json& json) { return JsonReader("a message", json); }
/// The same sentence as kDataLoss; OK stays OK.
Status AsDataLoss(const Status& status);

/// One member. Errors: kDataLoss: it is not there, of another type, or out of range.
template <typename T>
Result<T> Field(const Json& json, std::string_view name) {
  T value{};
  JsonReader reader = ReadMessage(json);
  reader(name, value);
  if (!reader.ok()) return AsDataLoss(reader.status());
  return value;
}
/// One member, or `value` if it is not there. Errors: kDataLoss for another type, or out of range.
template <typename T>
Result<T> FieldOr(const Json& json, std::string_view name, T value) {
  JsonReader reader = ReadMessage(json);
  reader.IfAny(name, value);
  if (!reader.ok()) return AsDataLoss(reader.status());
  return value;
}

/// An error on its way to the peer.
Json ErrorJson(const Status& status);
/// The error that the peer sent, if it sent one.
Status ErrorOf(const Json& json);

struct JsonMessage {
  Json json;         ///< an object
  std::string text;  ///< as it was sent
  std::vector<FileDescriptor> fds;
};

/// Errors: kResourceExhausted above kMaxMessageBytes; as SendMessage().
Status SendText(int fd, const std::string& text, std::span<const int> fds, Deadline deadline);
Status SendJson(int fd, const Json& json, std::span<const int> fds, Deadline deadline);
/// Errors: kDataLoss for what is no JSON object; as ReceiveMessage().
Result<JsonMessage> ReceiveJson(int fd, Deadline deadline);

/// One request and its answer.
struct Exchange {
  Json argument;  ///< the one thing that the request says; null: nothing
  std::vector<FileDescriptor> request_fds;
  Json answer = {{"ok", true}};
  std::vector<int> fds;               ///< that go with the answer
  std::vector<FileDescriptor> owned;  ///< closed behind the answer
  bool waits = false;                 ///< there is no answer yet: it is asked for again
  bool reads = false;                 ///< the peer is in the middle of reading, and may stay

  /// Errors: kDataLoss for another type, or out of range.
  template <typename T>
  Result<T> Argument(T fallback) const {
    if (argument.is_null()) return fallback;
    if (std::optional<T> value = argument.As<T>()) return std::move(*value);
    return DataLoss("a request says something of another type than it may");
  }

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

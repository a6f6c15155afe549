#include "cluster/json_message.h"

#include <fmt/core.h>

namespace passel {

Result<Json> ParseMessage(std::string_view text) {
  constexpr int kDepth = 4;  // answer > data > also > what one of the others trains on
  Result<Json> json = ParseJson("a message", text, kDepth);
  if (!json.ok()) return AsDataLoss(json.status());
  if (json->object() == nullptr) return DataLoss("a message is not a JSON object");
  return json;
}

Status AsDataLoss(const Status& status) {
  return status.ok() ? Status() : DataLoss(status.message());
}

Json ErrorJson(const Status& status) {
  return {{"error", static_cast<int>(status.code())}, {"message", status.message()}};
}

Status ErrorOf(const Json& json) {
  const Json* const error = json.Find("error");
  if (error == nullptr) return {};
  int code = error->As<int>().value_or(0);
  if (code <= 0 || code > static_cast<int>(Code::kDiverged))
    code = static_cast<int>(Code::kInternal);
  PASSEL_ASSIGN_OR_RETURN(std::string message,
                          FieldOr(json, "message", std::string("unknown error")));
  return Status(static_cast<Code>(code), std::move(message));
}

Status SendText(int fd, const std::string& text, std::span<const int> fds, Deadline deadline) {
  if (text.size() > kMaxMessageBytes) {
    return ResourceExhausted(fmt::format("a message has at most {} bytes, this one has {}",
                                         kMaxMessageBytes, text.size()));
  }
  return SendMessage(fd, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, fds,
                     deadline);
}

Status SendJson(int fd, const Json& json, std::span<const int> fds, Deadline deadline) {
  return SendText(fd, json.Write(), fds, deadline);
}

Result<JsonMessage> ReceiveJson(int fd, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(Message raw, ReceiveMessage(fd, deadline));
  JsonMessage message;
  message.text.assign(raw.bytes.begin(), raw.bytes.end());
  PASSEL_ASSIGN_OR_RETURN(message.json, ParseMessage(message.text));
  message.fds = std::move(raw.fds);
  return message;
}

}  // namespace passel

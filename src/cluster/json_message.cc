#include <fmt/core.h>

#include "base/json_document_internal.h"
#include "cluster/json_message_internal.h"

namespace passel {

Result<nlohmann::json> ParseMessage(std::string_view text) {
  constexpr int kDepth = 4;  // answer > data > also > what one of the others trains on
  Result<nlohmann::json> json = ParseJsonDocument("a message", text, kDepth);
  if (!json.ok() || !json->is_object()) return DataLoss("a message is not a JSON object");
  return json;
}

nlohmann::json ErrorJson(const Status& status) {
  return {{"error", static_cast<int>(status.code())}, {"message", status.message()}};
}

Status ErrorOf(const nlohmann::json& json) {
  if (!json.contains("error")) return {};
  int code = Field<int>(json, "error", static_cast<int>(Code::kInternal));
  if (code <= 0 || code > static_cast<int>(Code::kDiverged))
    code = static_cast<int>(Code::kInternal);
  return Status(static_cast<Code>(code), Field<std::string>(json, "message", "unknown error"));
}

Status SendText(int fd, const std::string& text, std::span<const int> fds, Deadline deadline) {
  if (text.size() > kMaxMessageBytes) {
    return ResourceExhausted(fmt::format("a message has at most {} bytes, this one has {}",
                                         kMaxMessageBytes, text.size()));
  }
  return SendMessage(fd, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, fds,
                     deadline);
}

Status SendJson(int fd, const nlohmann::json& json, std::span<const int> fds, Deadline deadline) {
  return SendText(fd, json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), fds,
                  deadline);
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

#include "shm/protocol.h"

#include <fmt/core.h>

#include "cluster/json_message_internal.h"
#include "shm/json_internal.h"

namespace passel::shm {

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

}  // namespace passel::shm

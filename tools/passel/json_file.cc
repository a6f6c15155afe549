#include "tools/passel/json_file.h"

#include <nlohmann/json.hpp>
#include <span>

#include "base/file.h"

namespace passel {

Status WriteJsonFile(const std::string& path, const nlohmann::ordered_json& json) {
  const std::string text =
      json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  const std::span<const std::byte> piece = std::as_bytes(std::span(text.data(), text.size()));
  return WriteFileAtomically(path, {&piece, 1});
}

}  // namespace passel

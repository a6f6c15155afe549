#include "base/text.h"

#include <algorithm>

namespace passel {

std::string Printable(std::string_view text, std::size_t max_bytes) {
  std::string out;
  for (const char c : text.substr(0, max_bytes)) out += c >= 0x20 && c < 0x7F ? c : '?';
  return out + (text.size() > max_bytes ? "..." : "");
}

std::string Quoted(std::string_view text, char quote) {
  std::string out = Printable(text, 64);
  std::replace(out.begin(), out.end(), quote, '?');
  return quote + out + quote;
}

}  // namespace passel

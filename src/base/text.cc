#include "base/text.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace passel {
namespace {

// Longer names are compared by their beginning: nobody's typing error is that long.
constexpr std::size_t kMaxCompared = 64;

/// Edits between `a` and `b`, both of at most kMaxCompared bytes; '-' counts as '_'.
std::size_t Distance(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) { return (x == '-' ? '_' : x) == (y == '-' ? '_' : y); };
  // Rows of the table of edits between beginnings: of a[..i-2], a[..i-1], a[..i].
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min(
          {last[j] + 1, row[j - 1] + 1, last[j - 1] + (same(a[i - 1], b[j - 1]) ? 0u : 1u)});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

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

std::string_view NearestName(std::string_view name, std::span<const std::string> known) {
  if (name.size() > kMaxCompared) return {};
  std::string_view nearest;
  std::size_t fewest = std::clamp<std::size_t>(name.size() / 3, 1, 3) + 1;
  for (const std::string& candidate : known) {
    if (candidate.size() > kMaxCompared) continue;
    const std::size_t distance = Distance(name, candidate);
    if (distance < fewest) {
      fewest = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace passel

#include "cluster/text.h"

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

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::optional<int> ParseDecimal(std::string_view text, int max) {
  if (text.empty() || text.size() > 9 || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  int value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value <= max ? std::optional(value) : std::nullopt;
}

bool IsJobName(std::string_view job) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !job.empty() && job.size() <= 32 && is_letter(job[0]) &&
         std::all_of(job.begin(), job.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_'; });
}

std::string Ordinal(std::size_t number) {
  const std::size_t last = number % 10;
  const bool teen = number / 10 % 10 == 1;
  const char* const ending = teen || last > 3 || last == 0 ? "th"
                             : last == 1                   ? "st"
                             : last == 2                   ? "nd"
                                                           : "rd";
  return std::to_string(number) + ending;
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

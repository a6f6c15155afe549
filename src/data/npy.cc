#include "data/npy.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <string_view>

namespace passel {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxDictionaryBytes = 65'536;  // NumPy writes 118 for a data set
constexpr std::size_t kMaxDimensions = 32;           // NumPy's own limit for long

// A reader of the few forms that occur in the dictionary. Each function skips blanks, then takes
// what it is named after, or takes nothing and returns false.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool Take(char wanted) {
    SkipBlanks();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool TakeWord(std::string_view wanted) {
    SkipBlanks();
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(wanted.size());
    return true;
  }
  // 'text' or "text"; a backslash is not understood.
  bool TakeString(std::string* out) {
    SkipBlanks();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) return false;
    const std::size_t end = rest_.find(rest_.front(), 1);
    if (end == std::string_view::npos) return false;
    const std::string_view text = rest_.substr(1, end - 1);
    for (const char c : text) {
      if (c == '\\' || c < ' ' || c > '~') return false;
    }
    *out = text;
    rest_.remove_prefix(end + 1);
    return true;
  }
  // Digits, with the L that Python 2 wrote behind some.
  bool TakeNumber(std::uint64_t* out) {
    SkipBlanks();
    std::uint64_t value = 0;
    std::size_t digits = 0;
    for (; digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9'; ++digits) {
      const auto digit = static_cast<std::uint64_t>(rest_[digits] - '0');
      if (value > (std::numeric_limits<std::uint64_t>::max() - digit) / 10) return false;
      value = value * 10 + digit;
    }
    if (digits == 0) return false;
    rest_.remove_prefix(digits);
    if (!rest_.empty() && rest_.front() == 'L') rest_.remove_prefix(1);
    *out = value;
    return true;
  }
  bool AtEnd() {
    SkipBlanks();
    return rest_.empty();
  }

 private:
  void SkipBlanks() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n')) {
      rest_.remove_prefix(1);
    }
  }
  std::string_view rest_;
};

// (), (5,), (5, 28) or (5, 28,)
bool TakeShape(Scanner* scan, std::vector<std::uint64_t>* shape) {
  if (!scan->Take('(')) return false;
  while (!scan->Take(')')) {
    std::uint64_t size = 0;
    if (!scan->TakeNumber(&size) || shape->size() == kMaxDimensions) return false;
    shape->push_back(size);
    if (scan->Take(',')) continue;
    // (5) is a number and no tuple.
    return shape->size() > 1 && scan->Take(')');
  }
  return true;
}

// "|u1", "u1", "<i8": byte order, kind, width.
bool ParseDescr(NpyHeader* header) {
  std::string_view text = header->descr;
  char order = '=';
  if (!text.empty() && std::string_view("<>|=").find(text.front()) != std::string_view::npos) {
    order = text.front();
    text.remove_prefix(1);
  }
  if (text.size() < 2 || text.size() > 4) return false;
  header->kind = text.front();
  if (header->kind < 'A' || header->kind > 'z') return false;
  std::uint32_t width = 0;
  for (const char c : text.substr(1)) {
    if (c < '0' || c > '9') return false;
    width = width * 10 + static_cast<std::uint32_t>(c - '0');
  }
  if (width == 0) return false;
  header->width = width;
  if (order == '=') order = std::endian::native == std::endian::little ? '<' : '>';
  header->byte_order = width == 1 ? '|' : order;
  return width == 1 || order != '|';
}

}  // namespace

std::string NpyShapeText(const std::vector<std::uint64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

Result<NpyHeader> ParseNpyDictionary(std::string_view text, const std::string& name) {
  const auto wrong = [&](std::string_view what) {
    return InvalidArgument(
        fmt::format("the npy header of {} {}: write the file again with numpy.savez", name, what));
  };
  NpyHeader header;
  bool have_descr = false, have_order = false, have_shape = false;
  Scanner scan(text);
  if (!scan.Take('{')) return wrong("is no dictionary");
  while (!scan.Take('}')) {
    std::string key;
    if (!scan.TakeString(&key) || !scan.Take(':')) return wrong("is no dictionary");
    if (key == "descr" && !have_descr) {
      have_descr = true;
      if (!scan.TakeString(&header.descr) || !ParseDescr(&header)) {
        return wrong("has a 'descr' that names no simple type such as '|u1'");
      }
    } else if (key == "fortran_order" && !have_order) {
      have_order = true;
      header.fortran_order = scan.TakeWord("True");
      if (!header.fortran_order && !scan.TakeWord("False")) {
        return wrong("has a 'fortran_order' that is neither True nor False");
      }
    } else if (key == "shape" && !have_shape) {
      have_shape = true;
      if (!TakeShape(&scan, &header.shape)) return wrong("has a 'shape' that is no tuple of sizes");
    } else {
      return wrong("has a key twice, or another key than 'descr', 'fortran_order' and 'shape'");
    }
    if (scan.Take(',')) continue;
    if (!scan.Take('}')) return wrong("is no dictionary");
    break;
  }
  if (!scan.AtEnd()) return wrong("goes on after its dictionary");
  if (!have_descr || !have_order || !have_shape) {
    return wrong("lacks one of the keys 'descr', 'fortran_order' and 'shape'");
  }
  return header;
}

Result<NpyHeader> ReadNpyHeader(ByteSource& source, const std::string& name) {
  const auto cut_off = [&](std::size_t needed, std::size_t got) {
    return DataLoss(
        fmt::format("{} is cut off: its npy header has {} bytes and {} are there; replace it by an "
                    "intact copy",
                    name, needed, got));
  };
  std::array<std::byte, 12> start{};
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(start[i]); };
  PASSEL_ASSIGN_OR_RETURN(std::size_t got, ReadUpTo(source, std::span(start).first(8)));
  const std::string_view magic(reinterpret_cast<const char*>(start.data()),
                               std::min(got, kMagic.size()));
  if (!kMagic.starts_with(magic)) {
    return InvalidArgument(
        fmt::format("{} is no npy file (its first bytes are not \\x93NUMPY): write it again with "
                    "numpy.savez",
                    name));
  }
  if (got < 8) return cut_off(10, got);
  const std::uint32_t major = at(6), minor = at(7);
  if (major < 1 || major > 3 || minor != 0) {
    return InvalidArgument(
        fmt::format("{} is an npy file of version {}.{}, and 1.0, 2.0 and 3.0 are read: write it "
                    "again with numpy.savez",
                    name, major, minor));
  }
  const std::size_t fixed = major == 1 ? 10 : 12;
  PASSEL_ASSIGN_OR_RETURN(const std::size_t more,
                          ReadUpTo(source, std::span(start).subspan(8, fixed - 8)));
  got += more;
  if (got < fixed) return cut_off(fixed, got);
  std::size_t length = at(8) | at(9) << 8;
  if (major > 1) length |= static_cast<std::size_t>(at(10)) << 16 | at(11) << 24;
  if (length > kMaxDictionaryBytes) {
    return InvalidArgument(
        fmt::format("the npy header of {} announces {} bytes, more than the {} allowed: write the "
                    "file again with numpy.savez",
                    name, length, kMaxDictionaryBytes));
  }
  std::string text(length, '\0');
  PASSEL_ASSIGN_OR_RETURN(got, ReadUpTo(source, std::as_writable_bytes(std::span(text))));
  if (got < length) return cut_off(fixed + length, fixed + got);
  PASSEL_ASSIGN_OR_RETURN(NpyHeader header, ParseNpyDictionary(text, name));
  header.header_bytes = fixed + length;
  return header;
}

}  // namespace passel

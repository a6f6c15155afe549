#include "io/safetensors_header.h"

#include <fmt/core.h>

#include <limits>
#include <set>
#include <utility>

namespace passel::safetensors_internal {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";

/// Appends a code point that is not a surrogate.
void AppendUtf8(std::uint32_t c, std::string* out) {
  const auto put = [out](std::uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

/// Reads the text from left to right, once. Every method returns false after it set `error_`, and
/// is then not called again.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Header> Run() {
    if (!ParseTop()) return error_;
    return std::move(header_);
  }

 private:
  bool Malformed(std::string_view what) {
    error_ = DataLoss(
        fmt::format("the safetensors header is malformed at its byte {}: {}; use another copy of "
                    "the file",
                    at_, what));
    return false;
  }
  bool OverLimit(std::string sentence) {
    error_ = InvalidArgument(std::move(sentence));
    return false;
  }

  /// -1 at the end of the text.
  int Peek() const { return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : -1; }
  void SkipSpace() {
    while (Peek() == ' ' || Peek() == '\t' || Peek() == '\n' || Peek() == '\r') ++at_;
  }
  /// One punctuation character and the white space around it.
  bool Expect(char c) {
    SkipSpace();
    if (Peek() != static_cast<unsigned char>(c)) return Malformed(fmt::format("expected '{}'", c));
    ++at_;
    SkipSpace();
    return true;
  }
  /// `element` for each element of a list that `open` has begun, until `close`.
  template <typename Element>
  bool List(char open, char close, Element element) {
    if (!Expect(open)) return false;
    if (Peek() == static_cast<unsigned char>(close)) {
      ++at_;
      return true;
    }
    for (;;) {
      if (!element()) return false;
      SkipSpace();
      if (Peek() == static_cast<unsigned char>(close)) {
        ++at_;
        return true;
      }
      if (Peek() != ',') return Malformed(fmt::format("expected ',' or '{}'", close));
      ++at_;
      SkipSpace();
    }
  }

  bool ParseHex4(std::uint32_t* value) {
    *value = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const int c = Peek();
      std::uint32_t digit = 0;
      if (c >= '0' && c <= '9')
        digit = static_cast<std::uint32_t>(c - '0');
      else if (c >= 'a' && c <= 'f')
        digit = static_cast<std::uint32_t>(c - 'a' + 10);
      else if (c >= 'A' && c <= 'F')
        digit = static_cast<std::uint32_t>(c - 'A' + 10);
      else
        return Malformed("expected four hexadecimal digits after \\u");
      *value = *value * 16 + digit;
    }
    return true;
  }

  bool ParseEscape(std::string* out) {
    const int c = Peek();
    ++at_;
    switch (c) {
      case '"':
      case '\\':
      case '/':
        out->push_back(static_cast<char>(c));
        return true;
      case 'b':
        out->push_back('\b');
        return true;
      case 'f':
        out->push_back('\f');
        return true;
      case 'n':
        out->push_back('\n');
        return true;
      case 'r':
        out->push_back('\r');
        return true;
      case 't':
        out->push_back('\t');
        return true;
      case 'u':
        break;
      default:
        --at_;
        return Malformed("unknown escape in a string");
    }
    std::uint32_t unit = 0;
    if (!ParseHex4(&unit)) return false;
    if (unit >= 0xD800 && unit <= 0xDFFF) {
      std::uint32_t low = 0;
      if (unit >= 0xDC00 || text_.substr(at_, 2) != "\\u") return Malformed("lone surrogate");
      at_ += 2;
      if (!ParseHex4(&low)) return false;
      if (low < 0xDC00 || low > 0xDFFF) return Malformed("lone surrogate");
      unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    }
    AppendUtf8(unit, out);
    return true;
  }

  bool ParseString(std::string* out) {
    out->clear();
    if (Peek() != '"') return Malformed("expected a string");
    ++at_;
    for (;;) {
      const int c = Peek();
      if (c < 0) return Malformed("a string has no end");
      if (c == '"') {
        ++at_;
        return true;
      }
      if (c < 0x20) return Malformed("control character in a string");
      if (c == '\\') {
        ++at_;
        if (!ParseEscape(out)) return false;
        continue;
      }
      std::uint32_t code_point = 0;
      const int length = DecodeUtf8(text_.substr(at_), &code_point);
      if (length == 0) return Malformed("a string is not valid UTF-8");
      out->append(text_, at_, static_cast<std::size_t>(length));
      at_ += static_cast<std::size_t>(length);
    }
  }

  /// A string and the colon after it. Points error messages about the key at its first byte.
  bool ParseKey(std::string* key, std::set<std::string, std::less<>>* seen) {
    const std::size_t start = at_;
    if (!ParseString(key)) return false;
    if (!seen->insert(*key).second) {
      at_ = start;
      return Malformed("a key occurs twice");
    }
    return Expect(':');
  }

  /// 0 or [1-9][0-9]{0,18}: at most 9,999,999,999,999,999,999, which fits in 64 bits.
  bool ParseInteger(std::uint64_t* value) {
    const std::size_t start = at_;
    *value = 0;
    while (Peek() >= '0' && Peek() <= '9') {
      if (at_ - start == 19) return Malformed("an integer has more than 19 digits");
      *value = *value * 10 + static_cast<std::uint64_t>(Peek() - '0');
      ++at_;
    }
    const std::size_t digits = at_ - start;
    if (digits == 0) return Malformed("expected an integer without a sign");
    if (digits > 1 && text_[start] == '0') {
      at_ = start;
      return Malformed("an integer begins with 0");
    }
    const int next = Peek();
    if (next == '.' || next == 'e' || next == 'E') {
      return Malformed("an integer has a fraction or an exponent");
    }
    return true;
  }

  bool ParseShape(std::vector<std::int64_t>* shape) {
    return List('[', ']', [&] {
      if (shape->size() == kSafetensorsMaxRank) {
        return OverLimit(
            fmt::format("a tensor in the safetensors header has more than {} dimensions: merge "
                        "some of them",
                        kSafetensorsMaxRank));
      }
      std::uint64_t size = 0;
      if (!ParseInteger(&size)) return false;
      if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return Malformed("a dimension is above 2^63 - 1");
      }
      shape->push_back(static_cast<std::int64_t>(size));
      return true;
    });
  }

  bool ParseOffsets(HeaderEntry* entry) {
    return Expect('[') && ParseInteger(&entry->begin) && Expect(',') && ParseInteger(&entry->end) &&
           ExpectLast(']');
  }
  /// As Expect, but leaves the white space after it to the caller.
  bool ExpectLast(char c) {
    SkipSpace();
    if (Peek() != static_cast<unsigned char>(c)) return Malformed(fmt::format("expected '{}'", c));
    ++at_;
    return true;
  }

  bool ParseEntry(HeaderEntry* entry) {
    std::set<std::string, std::less<>> seen;
    std::string key;
    std::string text;
    const bool ok = List('{', '}', [&] {
      if (!ParseKey(&key, &seen)) return false;
      if (key == "shape") return ParseShape(&entry->shape);
      if (key == "data_offsets") return ParseOffsets(entry);
      if (key != "dtype") {
        return Malformed("an entry has a key other than dtype, shape and data_offsets");
      }
      if (!ParseString(&text)) return false;
      const std::optional<DType> dtype = ParseDType(text);
      if (!dtype) return Malformed("unknown dtype");
      entry->dtype = *dtype;
      return true;
    });
    if (!ok) return false;
    if (seen.size() != 3) return Malformed("an entry lacks dtype, shape or data_offsets");
    return true;
  }

  bool ParseMetadata() {
    std::set<std::string, std::less<>> seen;
    std::string key;
    std::string value;
    return List('{', '}', [&] {
      if (!ParseKey(&key, &seen) || !ParseString(&value)) return false;
      header_.metadata.emplace(std::move(key), std::move(value));
      return true;
    });
  }

  bool ParseTop() {
    // Other readers skip white space or a byte order mark here; a file with either is refused.
    if (Peek() != '{') return Malformed("the first byte is not '{'");
    std::set<std::string, std::less<>> seen;
    std::string key;
    const bool ok = List('{', '}', [&] {
      const std::size_t start = at_;
      if (!ParseKey(&key, &seen)) return false;
      if (key == kMetadataKey) return ParseMetadata();
      if (const char* problem = NameProblem(key)) {
        return OverLimit(
            fmt::format("the tensor name at byte {} of the safetensors header {}", start, problem));
      }
      if (header_.entries.size() == kSafetensorsMaxTensors) {
        return OverLimit(fmt::format("the safetensors file has more than {} tensors: split it",
                                     kSafetensorsMaxTensors));
      }
      HeaderEntry& entry = header_.entries.emplace_back();
      entry.name = std::move(key);
      return ParseEntry(&entry);
    });
    if (!ok) return false;
    while (Peek() == ' ') ++at_;
    if (at_ != text_.size()) return Malformed("something other than spaces after the last '}'");
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Header header_;
  Status error_;
};

}  // namespace

Result<Header> ParseHeader(std::string_view text) { return Parser(text).Run(); }

std::optional<std::uint64_t> TensorBytes(std::span<const std::int64_t> shape, DType dtype) {
  auto bits = static_cast<std::uint64_t>(DTypeBits(dtype));
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    // Zeros are left out: [0, 2^40, 2^40] would pass a plain product but overflow the strides of
    // whoever uses the shape.
    if (size == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bits, static_cast<std::uint64_t>(size), &bits)) {
      return std::nullopt;
    }
  }
  if (empty) return 0;
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

int DecodeUtf8(std::string_view text, std::uint32_t* code_point) {
  const auto byte = [text](std::size_t i) -> std::uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;  // 0 continues nothing
  };
  const std::uint32_t first = byte(0);
  if (text.empty()) return 0;
  if (first < 0x80) {
    *code_point = first;
    return 1;
  }
  int length = 0;
  std::uint32_t value = 0;
  std::uint32_t least = 0;  // smaller values have a shorter form
  if ((first & 0xE0) == 0xC0) {
    length = 2, value = first & 0x1F, least = 0x80;
  } else if ((first & 0xF0) == 0xE0) {
    length = 3, value = first & 0x0F, least = 0x800;
  } else if ((first & 0xF8) == 0xF0) {
    length = 4, value = first & 0x07, least = 0x10000;
  } else {
    return 0;
  }
  for (int i = 1; i < length; ++i) {
    const std::uint32_t next = byte(static_cast<std::size_t>(i));
    if ((next & 0xC0) != 0x80) return 0;
    value = (value << 6) | (next & 0x3F);
  }
  if (value < least || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return 0;
  *code_point = value;
  return length;
}

const char* NameProblem(std::string_view name) {
  if (name.size() > kSafetensorsMaxNameBytes) return "has more than 256 bytes: shorten it";
  while (!name.empty()) {
    std::uint32_t c = 0;
    const int length = DecodeUtf8(name, &c);
    if (length == 0) return "is not valid UTF-8: use ASCII";
    if (c < 0x20 || (c >= 0x7F && c <= 0x9F)) return "holds a control character: leave it out";
    name.remove_prefix(static_cast<std::size_t>(length));
  }
  return nullptr;
}

}  // namespace passel::safetensors_internal

#include "data/csv.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

namespace passel {
namespace {

constexpr std::size_t kBufferBytes = 256 * 1024;
// A longer line is refused: one with 785 numbers of three digits has 3,139 bytes.
constexpr std::size_t kMaxLineBytes = 64 * 1024;
// A shorter line cannot have 785 columns.
constexpr std::size_t kMinLineBytes = 2 * kCsvColumns - 1;
constexpr std::size_t kMaxShownBytes = 32;  // of a wrong value in an error

// `text` in quotes, cut if it is long, with every byte that does not print as \xNN.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxShownBytes)) {
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return out + (text.size() > kMaxShownBytes ? "...\"" : "\"");
}

// The lines of a source, without their ends.
class LineReader {
 public:
  LineReader(ByteSource* source, const std::string* name) : source_(source), name_(name) {}

  // False at the end. The line stays valid until the next call, and the byte behind it may be read:
  // it is '\n' or '\r'.
  Result<bool> Next(std::string_view* line) {
    std::size_t searched = begin_;
    for (;;) {
      const auto* found =
          static_cast<char*>(std::memchr(buffer_.get() + searched, '\n', end_ - searched));
      if (found != nullptr) return Deliver(static_cast<std::size_t>(found - buffer_.get()), line);
      if (end_ - begin_ > kMaxLineBytes) return TooLong();
      if (ended_) {
        if (begin_ == end_) return false;
        buffer_[end_++] = '\n';  // there is room: see Refill()
        return Deliver(end_ - 1, line);
      }
      searched = end_ - begin_;
      std::memmove(buffer_.get(), buffer_.get() + begin_, searched);
      begin_ = 0;
      end_ = searched;
      PASSEL_RETURN_IF_ERROR(Refill());
    }
  }
  // Of the line that Next() gave last, from 1.
  std::uint64_t number() const { return number_; }

 private:
  Result<bool> Deliver(std::size_t newline, std::string_view* line) {
    std::size_t size = newline - begin_;
    if (size > kMaxLineBytes) return TooLong();
    if (size > 0 && buffer_[newline - 1] == '\r') --size;
    *line = {buffer_.get() + begin_, size};
    begin_ = newline + 1;
    ++number_;
    return true;
  }
  Status TooLong() const {
    return InvalidArgument(
        fmt::format("{}:{}: the line has more than {} bytes, and a label and 784 pixels need at "
                    "most 3139: use a file of comma-separated numbers",
                    *name_, number_ + 1, kMaxLineBytes));
  }
  // Leaves at least one byte of the buffer free. REQUIRES: at most kMaxLineBytes are in it.
  Status Refill() {
    const std::span<char> room(buffer_.get() + end_, kBufferBytes - 1 - end_);
    PASSEL_ASSIGN_OR_RETURN(const std::size_t got, source_->Read(std::as_writable_bytes(room)));
    end_ += got;
    if (got == 0) ended_ = true;
    return {};
  }

  ByteSource* source_;
  const std::string* name_;
  std::unique_ptr<char[]> buffer_ = std::make_unique_for_overwrite<char[]>(kBufferBytes);
  // Bytes [begin_, end_) are read from the source and not yet delivered.
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool ended_ = false;
  std::uint64_t number_ = 0;
};

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool IsHeader(std::string_view line) {
  constexpr std::string_view kLabel = "label,";
  return line.size() >= kLabel.size() &&
         std::equal(kLabel.begin(), kLabel.end(), line.begin(),
                    [](char wanted, char c) { return Lower(c) == wanted; });
}

// Reads one line as quickly as it goes: values of one to three digits. False when there is anything
// else: ReadLine() then finds out what.
// REQUIRES: the byte behind the line is no digit and no comma.
bool ReadLineFast(std::string_view line, std::byte* label, std::byte* pixels) {
  const char* p = line.data();
  const char* const end = p + line.size();
  const auto value = [&p](std::byte* out) {
    unsigned v = static_cast<unsigned char>(*p) - unsigned{'0'};
    if (v > 9) return false;
    unsigned digit = static_cast<unsigned char>(*++p) - unsigned{'0'};
    if (digit <= 9) {
      v = v * 10 + digit;
      digit = static_cast<unsigned char>(*++p) - unsigned{'0'};
      if (digit <= 9) {
        v = v * 10 + digit;
        ++p;
      }
    }
    *out = static_cast<std::byte>(v);
    return v <= 255;
  };
  if (!value(label)) return false;
  for (std::size_t i = 0; i < kCsvPixels; ++i) {
    if (*p != ',') return false;
    ++p;
    if (!value(pixels + i)) return false;
  }
  return p == end;
}

// Whether `text` is digits with a value of at most 255.
bool ReadValue(std::string_view text, std::byte* out) {
  if (text.empty()) return false;
  unsigned value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + static_cast<unsigned>(c - '0');
    if (value > 255) return false;
  }
  *out = static_cast<std::byte>(value);
  return true;
}

// Reads any line, or says what is wrong with it.
Status ReadLine(std::string_view line, const std::string& name, std::uint64_t number,
                std::byte* label, std::byte* pixels) {
  if (ReadLineFast(line, label, pixels)) return {};
  if (line.empty()) {
    return InvalidArgument(fmt::format("{}:{}: the line is empty: remove it", name, number));
  }
  const auto columns = static_cast<std::size_t>(std::count(line.begin(), line.end(), ',')) + 1;
  if (columns != kCsvColumns) {
    return InvalidArgument(
        fmt::format("{}:{}: the line has {} comma-separated {}, but a label and 784 pixels make "
                    "785: repair that line",
                    name, number, columns, columns == 1 ? "column" : "columns"));
  }
  for (std::size_t column = 0; column < kCsvColumns; ++column) {
    const std::string_view text = line.substr(0, line.find(','));
    if (!ReadValue(text, column == 0 ? label : pixels + column - 1)) {
      return InvalidArgument(fmt::format(
          "{}:{}: column {} ({}) is {}, but it must be an integer from 0 to 255 and "
          "nothing else: repair that line",
          name, number, column + 1, column == 0 ? "the label" : fmt::format("pixel {}", column - 1),
          Quoted(text)));
    }
    line.remove_prefix(std::min(line.size(), text.size() + 1));
  }
  return {};
}

// Takes the first line that is no header.
Result<bool> NextExample(LineReader* lines, const std::string& name, std::string_view* line) {
  PASSEL_ASSIGN_OR_RETURN(bool more, lines->Next(line));
  if (!more || lines->number() != 1 || !IsHeader(*line)) return more;
  const auto columns = static_cast<std::size_t>(std::count(line->begin(), line->end(), ',')) + 1;
  if (columns != kCsvColumns) {
    return InvalidArgument(
        fmt::format("{}:1: the header line has {} columns, but a label and 784 pixels make 785: "
                    "use another file",
                    name, columns));
  }
  return lines->Next(line);
}

}  // namespace

Result<std::uint32_t> CountCsv(ByteSource& source, const std::string& name, std::uint64_t limit) {
  constexpr std::uint64_t kMost = kMaxIdxPayloadBytes / kCsvPixels;
  LineReader lines(&source, &name);
  std::uint64_t count = 0;
  std::string_view line;
  while (limit == 0 || count < limit) {
    PASSEL_ASSIGN_OR_RETURN(const bool more, NextExample(&lines, name, &line));
    if (!more) break;
    if (line.size() < kMinLineBytes) {
      std::byte label, pixels[kCsvPixels];
      PASSEL_RETURN_IF_ERROR(ReadLine(line, name, lines.number(), &label, pixels));
    }
    if (++count > kMost) {
      return InvalidArgument(
          fmt::format("{}:{}: the file has more than the {} examples allowed: use fewer", name,
                      lines.number(), kMost));
    }
  }
  if (count == 0) {
    return InvalidArgument(
        fmt::format("{} {}: put lines of a label and 784 pixels there", name,
                    lines.number() == 0 ? "is empty" : "holds a header line and no examples"));
  }
  return static_cast<std::uint32_t>(count);
}

Status ReadCsv(ByteSource& source, const std::string& name, bool to_the_end,
               std::span<std::byte> images, std::span<std::byte> labels,
               const CsvProgress& on_progress) {
  PASSEL_CHECK(images.size() == kCsvPixels * labels.size(), "the buffers must fit one another");
  const auto changed = [&](std::string_view how) {
    return FailedPrecondition(
        fmt::format("{} changed while it was read (it has {} than the {} examples that were "
                    "counted): start again",
                    name, how, labels.size()));
  };
  LineReader lines(&source, &name);
  std::string_view line;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    PASSEL_ASSIGN_OR_RETURN(const bool more, NextExample(&lines, name, &line));
    if (!more) return changed("fewer");
    PASSEL_RETURN_IF_ERROR(
        ReadLine(line, name, lines.number(), &labels[i], &images[i * kCsvPixels]));
    if (on_progress && (i + 1) % kCsvProgressEvery == 0) {
      on_progress(name, static_cast<std::uint32_t>(i + 1));
    }
  }
  if (to_the_end) {
    PASSEL_ASSIGN_OR_RETURN(const bool more, NextExample(&lines, name, &line));
    if (more) return changed("more");
  }
  return {};
}

bool LooksLikeCsv(std::string_view start) {
  std::string_view line = start.substr(0, start.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (static_cast<std::size_t>(std::count(line.begin(), line.end(), ',')) != kCsvPixels) {
    return false;
  }
  return IsHeader(line) || std::all_of(line.begin(), line.end(),
                                       [](char c) { return (c >= '0' && c <= '9') || c == ','; });
}

}  // namespace passel

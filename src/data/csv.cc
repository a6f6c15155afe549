#include "data/csv.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "data/blob_internal.h"
#include "data/data_source.h"

namespace passel {
namespace {

constexpr std::size_t kBufferBytes = 256 * 1024;  // at first
// A longer first line is refused. It holds 2^24 numbers of three digits, more than a model takes.
constexpr std::size_t kMaxFirstLineBytes = std::size_t{64} << 20;
// So may a later one be: a number has three digits, or some zeros before them.
constexpr std::size_t kMaxLineBytes = 64 * 1024;
constexpr std::size_t kMaxColumnBytes = 16;
constexpr std::size_t kMnistPixels = 784;
constexpr std::size_t kMaxShownBytes = 32;  // of a wrong value in an error

// `text` in quotes, cut if it is long, with every byte that does not print as \xNN.
std::string QuotedValue(std::string_view text) {
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
  LineReader(ByteSource* source, const std::string* name)
      : source_(source), name_(name), buffer_(kBufferBytes) {}

  // False at the end. The line stays valid until the next call, and the byte behind it may be read:
  // it is '\n' or '\r'.
  Result<bool> Next(std::string_view* line) {
    std::size_t searched = begin_;
    for (;;) {
      const auto* found =
          static_cast<char*>(std::memchr(buffer_.data() + searched, '\n', end_ - searched));
      if (found != nullptr) return Deliver(static_cast<std::size_t>(found - buffer_.data()), line);
      if (end_ - begin_ > max_line_) return TooLong();
      if (ended_) {
        if (begin_ == end_) return false;
        buffer_[end_++] = '\n';  // there is room: see Refill()
        return Deliver(end_ - 1, line);
      }
      searched = end_ - begin_;
      std::memmove(buffer_.data(), buffer_.data() + begin_, searched);
      begin_ = 0;
      end_ = searched;
      PASSEL_RETURN_IF_ERROR(Refill());
    }
  }
  // The number of the line that Next() gave last, from 1.
  std::uint64_t number() const { return number_; }
  // Lines have `columns` columns from here on.
  void Expect(std::size_t columns) {
    max_line_ = std::max(kMaxLineBytes, kMaxColumnBytes * columns);
  }

 private:
  Result<bool> Deliver(std::size_t newline, std::string_view* line) {
    std::size_t size = newline - begin_;
    if (size > max_line_) return TooLong();
    if (size > 0 && buffer_[newline - 1] == '\r') --size;
    *line = {buffer_.data() + begin_, size};
    begin_ = newline + 1;
    ++number_;
    return true;
  }
  Status TooLong() const {
    return InvalidArgument(
        fmt::format("{}:{}: the line has more than {} bytes, the most that {} may have: use a file "
                    "of comma-separated numbers with an end of line after each image",
                    *name_, number_ + 1, max_line_,
                    max_line_ == kMaxFirstLineBytes ? "one" : "one of so many columns"));
  }
  // Leaves at least one byte of the buffer free.
  Status Refill() {
    if (2 * end_ > buffer_.size()) buffer_.resize(2 * buffer_.size());
    const std::span<char> room(buffer_.data() + end_, buffer_.size() - 1 - end_);
    PASSEL_ASSIGN_OR_RETURN(const std::size_t got, source_->Read(std::as_writable_bytes(room)));
    end_ += got;
    if (got == 0) ended_ = true;
    return {};
  }

  ByteSource* source_;
  const std::string* name_;
  std::vector<char> buffer_;
  std::size_t max_line_ = kMaxFirstLineBytes;
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
bool ReadLineFast(std::string_view line, std::byte* label, std::span<std::byte> pixels) {
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
  for (std::byte& pixel : pixels) {
    if (*p != ',') return false;
    ++p;
    if (!value(&pixel)) return false;
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

std::size_t CountColumns(std::string_view line) {
  return static_cast<std::size_t>(std::count(line.begin(), line.end(), ',')) + 1;
}

std::string ColumnsInWords(std::size_t columns) {
  return fmt::format("{} comma-separated {}", columns, columns == 1 ? "column" : "columns");
}

// Reads any line, or says what is wrong with it.
Status ReadLine(std::string_view line, const std::string& name, std::uint64_t number,
                std::byte* label, std::span<std::byte> pixels) {
  if (ReadLineFast(line, label, pixels)) return {};
  if (line.empty()) {
    return InvalidArgument(fmt::format("{}:{}: the line is empty: remove it", name, number));
  }
  if (const std::size_t columns = CountColumns(line); columns != 1 + pixels.size()) {
    return InvalidArgument(
        fmt::format("{}:{}: the line has {}, but the first one has {}: repair one of them", name,
                    number, ColumnsInWords(columns), 1 + pixels.size()));
  }
  for (std::size_t column = 0; column <= pixels.size(); ++column) {
    const std::string_view text = line.substr(0, line.find(','));
    if (!ReadValue(text, column == 0 ? label : &pixels[column - 1])) {
      return InvalidArgument(fmt::format(
          "{}:{}: column {} ({}) is {}, but it must be an integer from 0 to 255 and "
          "nothing else: repair that line",
          name, number, column + 1, column == 0 ? "the label" : fmt::format("pixel {}", column - 1),
          QuotedValue(text)));
    }
    line.remove_prefix(std::min(line.size(), text.size() + 1));
  }
  return {};
}

// Takes the first line that is no header. `*columns`, unless it is 0, is how many there must be; if
// it is 0 the first line decides.
Result<bool> NextExample(LineReader* lines, const std::string& name, std::size_t* columns,
                         std::string_view* line) {
  PASSEL_ASSIGN_OR_RETURN(bool more, lines->Next(line));
  if (!more || lines->number() != 1) return more;
  const std::size_t found = CountColumns(*line);
  const auto wrong = [&](std::string_view why) {
    return InvalidArgument(
        fmt::format("{}:1: the line has {}, but {}", name, ColumnsInWords(found), why));
  };
  if (line->empty()) {
    return InvalidArgument(fmt::format("{}:1: the line is empty: remove it", name));
  }
  if (found == 1) return wrong("a label and at least one pixel make 2: use another file");
  if (found == kMnistPixels) {  // the one mistake that is common
    return wrong("a label and the 784 pixels of MNIST make 785: put the label first");
  }
  if (*columns != 0 && found != *columns) {
    return FailedPrecondition(
        fmt::format("{} changed while it was read (its first line has {} columns and had {}): "
                    "start again",
                    name, found, *columns));
  }
  *columns = found;
  lines->Expect(found);
  return IsHeader(*line) ? lines->Next(line) : more;
}

}  // namespace

Result<CsvShape> MeasureCsv(ByteSource& source, const std::string& name, std::uint64_t limit) {
  LineReader lines(&source, &name);
  std::uint64_t count = 0;
  std::size_t columns = 0;
  std::string_view line;
  while (limit == 0 || count < limit) {
    PASSEL_ASSIGN_OR_RETURN(const bool more, NextExample(&lines, name, &columns, &line));
    if (!more) break;
    // A digit for each column and the commas between them.
    if (line.size() < 2 * columns - 1) {
      std::byte label;
      std::vector<std::byte> pixels(columns - 1);
      PASSEL_RETURN_IF_ERROR(ReadLine(line, name, lines.number(), &label, pixels));
    }
    const std::uint64_t most = kMaxIdxPayloadBytes / (columns - 1);
    if (++count > most) {
      return InvalidArgument(
          fmt::format("{}:{}: the file has more than the {} examples allowed: use fewer", name,
                      lines.number(), most));
    }
  }
  if (count == 0) {
    return InvalidArgument(
        fmt::format("{} {}: put lines of a label and the pixels of an image there", name,
                    lines.number() == 0 ? "is empty" : "holds a header line and no examples"));
  }
  return CsvShape{static_cast<std::uint32_t>(count), columns - 1};
}

Status ReadCsv(ByteSource& source, const std::string& name, bool to_the_end,
               std::span<std::byte> images, std::span<std::byte> labels,
               const CsvProgress& on_progress) {
  PASSEL_CHECK(!labels.empty() && !images.empty() && images.size() % labels.size() == 0,
               "the buffers must fit one another");
  const std::size_t pixels = images.size() / labels.size();
  std::size_t columns = 1 + pixels;
  const auto changed = [&](std::string_view how) {
    return FailedPrecondition(
        fmt::format("{} changed while it was read (it has {} than the {} examples that were "
                    "counted): start again",
                    name, how, labels.size()));
  };
  LineReader lines(&source, &name);
  std::string_view line;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    PASSEL_ASSIGN_OR_RETURN(const bool more, NextExample(&lines, name, &columns, &line));
    if (!more) return changed("fewer");
    PASSEL_RETURN_IF_ERROR(
        ReadLine(line, name, lines.number(), &labels[i], images.subspan(i * pixels, pixels)));
    if (on_progress && (i + 1) % kCsvProgressEvery == 0) {
      on_progress(name, static_cast<std::uint32_t>(i + 1));
    }
  }
  if (to_the_end) {
    PASSEL_ASSIGN_OR_RETURN(const bool more, NextExample(&lines, name, &columns, &line));
    if (more) return changed("more");
  }
  return {};
}

Result<MeasuredData> OpenCsvFiles(const std::vector<std::string>& paths,
                                  const DataOptions& options) {
  const std::array<std::uint64_t, 2> limits = {options.csv_train_limit, options.csv_test_limit};
  CsvShape shapes[2];
  for (std::size_t i = 0; i < 2; ++i) {
    PASSEL_ASSIGN_OR_RETURN(const auto source, FileSource::Open(paths[i]));
    PASSEL_ASSIGN_OR_RETURN(shapes[i], MeasureCsv(*source, paths[i], limits[i]));
  }
  const auto [train, test] = shapes;
  if (train.pixels != test.pixels) {
    return InvalidArgument(
        fmt::format("{} has images of {} pixels but {} has {}: use two files of one set", paths[0],
                    train.pixels, paths[1], test.pixels));
  }
  const auto read = [paths, limits,
                     on_progress = options.on_csv_progress](const BlobWriter& to) -> Status {
    for (std::size_t i = 0; i < 2; ++i) {
      PASSEL_ASSIGN_OR_RETURN(const auto source, FileSource::Open(paths[i]));
      const std::span<std::byte> labels = to.part(i == 0 ? kTrainLabels : kTestLabels);
      const bool to_the_end = limits[i] == 0 || labels.size() < limits[i];
      PASSEL_RETURN_IF_ERROR(ReadCsv(*source, paths[i], to_the_end,
                                     to.part(i == 0 ? kTrainImages : kTestImages), labels,
                                     on_progress));
    }
    return {};
  };
  BlobShape shape{train.count, test.count, 0, 0};
  SetSides(train.pixels, &shape);
  return MeasuredData{shape, paths[0], paths[1], read};
}

Status CheckCsvFiles(const std::vector<std::string>& paths) {
  DataOptions first;
  first.csv_train_limit = first.csv_test_limit = 1;
  PASSEL_ASSIGN_OR_RETURN(const MeasuredData data, OpenCsvFiles(paths, first));
  std::vector<std::byte> blob(BlobBytes(data.shape));
  PASSEL_ASSIGN_OR_RETURN(const BlobWriter writer, BlobWriter::Create(blob, data.shape, paths[0]));
  return data.read(writer);
}

}  // namespace passel

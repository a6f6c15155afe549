// fuzz_csv.cc - libFuzzer target: no text may crash the CSV reader, and it accepts exactly the
// examples that a plain reading of the rules accepts, with the same values.
//
// Long lines are more than a fuzzer finds, so the input is also tried with "%" standing for 100
// columns and "@" for 84.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/csv.h"

namespace {

constexpr std::size_t kMaxTextBytes = 1 << 20;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "fuzz_csv: %s\n", what.c_str());
  std::abort();
}

// A source that hands out pieces of uneven sizes.
class PieceSource : public passel::SpanSource {
 public:
  PieceSource(std::string_view text, std::size_t piece)
      : SpanSource(std::as_bytes(std::span(text))), piece_(piece) {}
  passel::Result<std::size_t> Read(std::span<std::byte> to) override {
    piece_ = piece_ * 5 % 4099 + 1;
    return SpanSource::Read(to.first(std::min(piece_, to.size())));
  }

 private:
  std::size_t piece_;
};

struct Examples {
  std::vector<std::uint8_t> labels, images;
  std::size_t columns = 0;
};

// The rules of csv.h, one after the other. Nothing if a rule is broken.
std::optional<Examples> Reference(std::string_view text) {
  Examples out;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (number > 1 && line.size() > std::max<std::size_t>(65'536, 16 * out.columns)) {
      return std::nullopt;
    }
    if (line.ends_with('\r')) line.remove_suffix(1);
    std::vector<std::string_view> fields;
    for (;;) {
      const std::size_t comma = line.find(',');
      fields.push_back(line.substr(0, comma));
      if (comma == std::string_view::npos) break;
      line.remove_prefix(comma + 1);
    }
    if (number == 1) out.columns = fields.size();
    if (fields.size() != out.columns || out.columns == 1 || out.columns == 784) return std::nullopt;
    std::string first(fields[0]);
    for (char& c : first) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
    if (number == 1 && first == "label") continue;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      std::string_view field = fields[i];
      if (field.empty()) return std::nullopt;
      if (field.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
      while (field.size() > 1 && field[0] == '0') field.remove_prefix(1);
      if (field.size() > 3) return std::nullopt;
      const int value = std::atoi(std::string(field).c_str());
      if (value > 255) return std::nullopt;
      (i == 0 ? out.labels : out.images).push_back(static_cast<std::uint8_t>(value));
    }
  }
  if (out.labels.empty()) return std::nullopt;
  return out;
}

passel::Result<Examples> Read(std::string_view text, std::size_t piece) {
  PieceSource counted(text, piece);
  const auto shape = passel::MeasureCsv(counted, "input");
  if (!shape.ok()) return shape.status();
  // Of each column there is a digit, and what ends it.
  if (shape->count > (text.size() + 1) / (2 * (shape->pixels + 1))) {
    Fail("more examples than the text can hold");
  }
  Examples out{std::vector<std::uint8_t>(shape->count),
               std::vector<std::uint8_t>(shape->count * shape->pixels)};
  PieceSource read(text, piece);
  const passel::Status status = passel::ReadCsv(read, "input", /*to_the_end=*/true,
                                                std::as_writable_bytes(std::span(out.images)),
                                                std::as_writable_bytes(std::span(out.labels)));
  if (!status.ok()) return status;
  return out;
}

void CheckOne(std::string_view text) {
  const auto wanted = Reference(text);
  const auto got = Read(text, text.size());
  if (got.ok() != wanted.has_value())
    Fail("accepted or refused wrongly: " + got.status().ToString());
  if (!got.ok()) {
    for (const char c : got.status().message()) {
      if (c < ' ' || c > '~') Fail("a message that does not print");
    }
    return;
  }
  if (got->labels != wanted->labels || got->images != wanted->images) Fail("other values");
}

// `text` with many columns for a few characters.
std::string Expand(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const int columns = c == '%' ? 100 : c == '@' ? 84 : 0;
    if (columns == 0) out += c;
    for (int i = 0; i < columns; ++i) (out += ',') += std::to_string(i * 3 % 256);
    if (out.size() > kMaxTextBytes) break;
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CheckOne(text);
  CheckOne(Expand(text));
  return 0;
}

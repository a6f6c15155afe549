#include "data/csv.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/data/test_files.h"

namespace passel {
namespace {

using test::Bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

// Hands out between 1 and `most` bytes at a time, so that every boundary inside a line is met.
class RandomDripSource : public SpanSource {
 public:
  RandomDripSource(std::span<const std::byte> bytes, std::size_t most)
      : SpanSource(bytes), most_(most) {}
  Result<std::size_t> Read(std::span<std::byte> to) override {
    return SpanSource::Read(to.first(std::min(1 + random_() % most_, to.size())));
  }

 private:
  std::size_t most_;
  std::mt19937 random_{1};
};

constexpr std::size_t kPixels = 784, kColumns = 785;

struct Examples {
  Bytes images, labels;
  friend bool operator==(const Examples&, const Examples&) = default;
};

// Counts, then reads.
Result<Examples> Parse(const std::string& text, std::uint64_t limit = 0, std::size_t drip = 1 << 20,
                       const CsvProgress& on_progress = {}) {
  const auto bytes = std::as_bytes(std::span(text));
  RandomDripSource counted(bytes, drip);
  PASSEL_ASSIGN_OR_RETURN(const CsvShape shape, MeasureCsv(counted, "d/some.csv", limit));
  Examples out{Bytes(shape.count * shape.pixels), Bytes(shape.count)};
  RandomDripSource read(bytes, drip);
  PASSEL_RETURN_IF_ERROR(ReadCsv(read, "d/some.csv", limit == 0 || shape.count < limit,
                                 std::as_writable_bytes(std::span(out.images)),
                                 std::as_writable_bytes(std::span(out.labels)), on_progress));
  return out;
}

// One line for each label, without its end; pixels run through all values.
std::string Line(unsigned label, unsigned start = 0) {
  std::string text = std::to_string(label);
  for (std::size_t i = 0; i < kPixels; ++i) (text += ',') += std::to_string((start + i) % 256);
  return text;
}

Examples Expected(const std::vector<std::pair<unsigned, unsigned>>& lines) {
  Examples out;
  for (const auto& [label, start] : lines) {
    out.labels.push_back(static_cast<std::uint8_t>(label));
    for (std::size_t i = 0; i < kPixels; ++i) {
      out.images.push_back(static_cast<std::uint8_t>((start + i) % 256));
    }
  }
  return out;
}

std::string HeaderLine() {
  std::string text = "label";
  for (std::size_t i = 0; i < kPixels; ++i) (text += ",pixel") += std::to_string(i);
  return text;
}

// `line` with column `column` (from 1) replaced.
std::string With(const std::string& line, std::size_t column, const std::string& value) {
  std::size_t begin = 0;
  for (std::size_t i = 1; i < column; ++i) begin = line.find(',', begin) + 1;
  const std::size_t end = std::min(line.find(',', begin), line.size());
  return line.substr(0, begin) + value + line.substr(end);
}

TEST(CsvTest, ReadsLinesWithEveryEnd) {
  const Examples expected = Expected({{5, 0}, {255, 100}, {0, 7}});
  for (const std::string end : {"\n", "\r\n"}) {
    for (const bool header : {false, true}) {
      for (const bool final_end : {false, true}) {
        const std::string text = (header ? HeaderLine() + end : "") + Line(5) + end +
                                 Line(255, 100) + end + Line(0, 7) + (final_end ? end : "");
        for (const std::size_t drip : {1u, 7u, 3000u, 1u << 20}) {
          const auto examples = Parse(text, 0, drip);
          ASSERT_TRUE(examples.ok()) << examples.status().ToString();
          EXPECT_TRUE(*examples == expected);
        }
      }
    }
  }
}

TEST(CsvTest, RecognisesAHeaderByItsFirstColumnAlone) {
  std::string other = HeaderLine();
  other.replace(0, 5, "Label");
  EXPECT_TRUE(Parse(other + "\n" + Line(5)).ok());
  EXPECT_EQ(Parse(HeaderLine() + "\n" + HeaderLine() + "\n" + Line(5)).status().code(),
            Code::kInvalidArgument);
  EXPECT_THAT(Parse(HeaderLine() + ",x\n" + Line(5)).status().message(),
              StartsWith("d/some.csv:2: the line has 785 comma-separated columns, but the first "
                         "one has 786: repair one of them"));
  other.replace(0, 5, "klasse");
  EXPECT_THAT(Parse(other + "\n" + Line(5)).status().message(),
              StartsWith("d/some.csv:1: column 1 (the label) is \"klasse\""));
}

TEST(CsvTest, ReadsAsManyLinesAsTheLimitSays) {
  const std::string text = Line(1) + "\n" + Line(2) + "\n" + Line(3) + "\nnonsense\n";
  EXPECT_TRUE(*Parse(text, 2) == Expected({{1, 0}, {2, 0}}));
  EXPECT_TRUE(*Parse(text, 3) == Expected({{1, 0}, {2, 0}, {3, 0}}));
  EXPECT_THAT(Parse(text, 4).status().message(), StartsWith("d/some.csv:4: "));
  EXPECT_EQ(Parse(Line(1), 9)->labels.size(), 1u);
  // The header is no example.
  EXPECT_TRUE(*Parse(HeaderLine() + "\n" + text, 1) == Expected({{1, 0}}));
}

TEST(CsvTest, ReportsProgressEachTenThousandExamples) {
  std::string zeros = "7";
  for (std::size_t i = 0; i < kPixels; ++i) zeros += ",0";
  std::string text;
  for (int i = 0; i < 20'001; ++i) text += zeros + "\n";
  std::vector<std::pair<std::string, std::uint32_t>> told;
  const auto examples = Parse(text, 0, 1 << 20, [&](const std::string& name, std::uint32_t count) {
    told.emplace_back(name, count);
  });
  ASSERT_TRUE(examples.ok());
  EXPECT_EQ(examples->labels.size(), 20'001u);
  EXPECT_THAT(told, ElementsAre(Pair("d/some.csv", 10'000u), Pair("d/some.csv", 20'000u)));
}

TEST(CsvTest, NamesLineColumnAndValueThatIsWrong) {
  const std::string good = Line(5);
  const std::pair<std::string, std::string> values[] = {
      {"", "\"\""},
      {"-3", "\"-3\""},
      {"256", "\"256\""},
      {"1000", "\"1000\""},
      {" 5", "\" 5\""},
      {"5 ", "\"5 \""},
      {"+5", "\"+5\""},
      {"5.0", "\"5.0\""},
      {"1e1", "\"1e1\""},
      {"abc", "\"abc\""},
      {"\"5\"", "\"\"5\"\""},
      {"0x1", "\"0x1\""},
      {"\t5", "\"\\x095\""},
      {"5\r", "\"5\\x0d\""},
      {std::string("\0", 1), "\"\\x00\""},
      {"\xef", "\"\\xef\""},
      {"nan", "\"nan\""},
      {"99999999999999999999", "\"99999999999999999999\""},
      {std::string(40, '9'), fmt::format("\"{}...\"", std::string(32, '9'))},
  };
  for (const std::size_t column : {1u, 2u, 400u, 785u}) {
    const std::string what = column == 1 ? "the label" : "pixel " + std::to_string(column - 2);
    for (const auto& [value, shown] : values) {
      if (column == 785 && value == "5\r") continue;  // that is a line's end
      const auto examples = Parse(good + "\n" + good + "\n" + With(good, column, value) + "\n");
      EXPECT_EQ(examples.status().code(), Code::kInvalidArgument) << column << value;
      EXPECT_THAT(examples.status().message(),
                  StartsWith("d/some.csv:3: column " + std::to_string(column) + " (" + what +
                             ") is " + shown + ", but it must be an integer from 0 to 255"));
    }
  }
}

TEST(CsvTest, AcceptsLeadingZerosAsPythonDoes) {
  for (const std::size_t column : {1u, 2u, 785u}) {
    for (const char* value : {"00", "007", "0255", "0000000000000000000012"}) {
      EXPECT_TRUE(Parse(With(Line(5), column, value)).ok()) << value;
    }
  }
  EXPECT_EQ(Parse(With(Line(5), 1, "0000255"))->labels, (Bytes{255}));
}

TEST(CsvTest, ReadsImagesOfAnySize) {
  EXPECT_TRUE(*Parse("3,7\n0,255\n") == (Examples{{7, 255}, {3, 0}}));
  EXPECT_TRUE(*Parse("label,a,b,c\n9,1,2,3\n") == (Examples{{1, 2, 3}, {9}}));
  // 300 x 300 pixels: lines longer than the first buffer.
  Examples large;
  std::string text;
  for (const unsigned label : {4u, 2u}) {
    large.labels.push_back(static_cast<std::uint8_t>(label));
    text += std::to_string(label);
    for (unsigned i = 0; i < 90'000; ++i) {
      large.images.push_back(static_cast<std::uint8_t>(100 + (i + label) % 156));
      (text += ',') += std::to_string(100 + (i + label) % 156);
    }
    text += '\n';
  }
  for (const std::size_t drip : {5'000u, 1u << 22}) {
    const auto examples = Parse(text, 0, drip);
    ASSERT_TRUE(examples.ok()) << examples.status().ToString();
    EXPECT_TRUE(*examples == large);
  }
}

TEST(CsvTest, RefusesOtherNumbersOfColumns) {
  const std::string good = Line(5);
  EXPECT_THAT(Parse(good + "\n" + good + ",0\n").status().message(),
              StartsWith("d/some.csv:2: the line has 786 comma-separated columns"));
  EXPECT_THAT(Parse(good + ",\n").status().message(),
              StartsWith("d/some.csv:1: column 786 (pixel 784) is \"\""));
  EXPECT_THAT(Parse(std::string(1, ',').append(good)).status().message(),
              StartsWith("d/some.csv:1: column 1 (the label) is \"\""));
  EXPECT_THAT(Parse(good.substr(0, good.rfind(',')) + "\n").status().message(),
              StartsWith("d/some.csv:1: the line has 784 comma-separated columns, but a label and "
                         "the 784 pixels of MNIST make 785: put the label first"));
  EXPECT_THAT(Parse(good + "\n5\n").status().message(),
              StartsWith("d/some.csv:2: the line has 1 comma-separated column,"));
  std::string semicolons = good;
  std::replace(semicolons.begin(), semicolons.end(), ',', ';');
  EXPECT_THAT(Parse(semicolons).status().message(), HasSubstr("has 1 comma-separated column,"));
}

TEST(CsvTest, RefusesEmptyFilesAndEmptyLines) {
  EXPECT_THAT(Parse("").status().message(), StartsWith("d/some.csv is empty: "));
  EXPECT_THAT(Parse(HeaderLine() + "\n").status().message(),
              StartsWith("d/some.csv holds a header line and no examples"));
  EXPECT_THAT(Parse(std::string(1, '\n').append(Line(5))).status().message(),
              StartsWith("d/some.csv:1: the line is empty"));
  EXPECT_THAT(Parse(Line(5) + "\n\n").status().message(),
              StartsWith("d/some.csv:2: the line is empty"));
  EXPECT_THAT(Parse(Line(5) + "\r\n\r\n").status().message(),
              StartsWith("d/some.csv:2: the line is empty"));
}

TEST(CsvTest, RefusesLinesWithoutEnd) {
  for (const std::size_t size : {65'537u, 3'000'000u}) {
    for (const std::size_t drip : {40'000u, 1u << 20}) {
      const auto examples = Parse(Line(5) + "\n" + std::string(size, '1'), 0, drip);
      EXPECT_EQ(examples.status().code(), Code::kInvalidArgument);
      EXPECT_THAT(examples.status().message(),
                  StartsWith("d/some.csv:2: the line has more than 65536 bytes"));
    }
  }
  EXPECT_THAT(Parse(std::string((64u << 20) + 1, '1')).status().message(),
              StartsWith("d/some.csv:1: the line has more than 67108864 bytes"));
}

TEST(CsvTest, CountsNoMoreExamplesThanTheFileCanHold) {
  // A counting pass that believed this would ask for 784 MB.
  const auto examples = Parse(std::string(1'000'000, '\n'));
  EXPECT_THAT(examples.status().message(), StartsWith("d/some.csv:1: the line is empty"));
}

TEST(CsvTest, NoticesAFileThatChangedAfterItWasCounted) {
  const std::string text = Line(1) + "\n" + Line(2) + "\n";
  const auto read = [&](std::size_t count, bool to_the_end) {
    Bytes images(count * kPixels), labels(count);
    SpanSource source(std::as_bytes(std::span(text)));
    return ReadCsv(source, "d/some.csv", to_the_end, std::as_writable_bytes(std::span(images)),
                   std::as_writable_bytes(std::span(labels)));
  };
  EXPECT_TRUE(read(2, true).ok());
  EXPECT_TRUE(read(1, false).ok());
  EXPECT_THAT(read(1, true).message(), HasSubstr("changed while it was read (it has more than"));
  EXPECT_THAT(read(3, true).message(), HasSubstr("changed while it was read (it has fewer than"));
  EXPECT_EQ(read(3, false).code(), Code::kFailedPrecondition);
}

// What a line means, by other means than the reader's: nothing if it is no example.
std::optional<Bytes> Reference(const std::string& line) {
  Bytes values;
  std::stringstream stream(line + ",");
  std::string field;
  while (std::getline(stream, field, ',')) {
    if (field.empty() || field.find_first_not_of("0123456789") != std::string::npos) return {};
    const std::size_t digits = std::min(field.find_first_not_of('0'), field.size() - 1);
    if (field.size() - digits > 3 || std::stoi(field.substr(digits)) > 255) return {};
    values.push_back(static_cast<std::uint8_t>(std::stoi(field.substr(digits))));
  }
  if (values.size() < 2 || values.size() == kPixels) return {};
  return values;
}

TEST(CsvTest, AgreesWithAReferenceOnRandomlyDamagedLines) {
  std::mt19937 random(7);
  constexpr char kCharacters[] = "0123456789,,,  \t\r;.-+\"exnN\x7f";
  int accepted = 0, refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string line;
    for (std::size_t i = 0; i < kColumns; ++i) {
      (line += i == 0 ? "" : ",") += std::to_string(random() % (random() % 2 ? 256 : 10));
    }
    for (unsigned damage = random() % 3; damage > 0; --damage) {
      const std::size_t at = random() % line.size();
      const char c = kCharacters[random() % (sizeof(kCharacters) - 1)];
      switch (random() % 3) {
        case 0:
          line[at] = c;
          break;
        case 1:
          line.insert(at, 1, c);
          break;
        default:
          line.erase(at, 1);
      }
    }
    if (line.back() == '\r') continue;
    const auto wanted = Reference(line);
    const auto got = Parse(line + "\n");
    ASSERT_EQ(got.ok(), wanted.has_value()) << line << "\n" << got.status().ToString();
    ++(got.ok() ? accepted : refused);
    if (got.ok()) {
      EXPECT_EQ(got->labels[0], (*wanted)[0]);
      EXPECT_TRUE(std::equal(got->images.begin(), got->images.end(), wanted->begin() + 1));
    } else {
      EXPECT_THAT(got.status().message(), StartsWith("d/some.csv:1: "));
      for (const char c : got.status().message()) {
        EXPECT_TRUE(c >= ' ' && c <= '~') << got.status().message();
      }
    }
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(CsvTest, RefusesABlankAnywhere) {
  std::mt19937 random(11);
  const std::string line = Line(5, 3);
  for (int round = 0; round < 500; ++round) {
    std::string text = Line(1) + "\n" + line;
    text.insert(text.size() - random() % (line.size() + 1), 1, random() % 2 ? ' ' : '\t');
    const auto examples = Parse(text + "\n");
    ASSERT_FALSE(examples.ok()) << text;
    EXPECT_THAT(examples.status().message(), StartsWith("d/some.csv:2: column "));
  }
}

}  // namespace
}  // namespace passel

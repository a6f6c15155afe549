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
using test::Fails;
using ::testing::ElementsAre;
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

void ExpectExamples(const std::string& text, const Examples& expected, std::uint64_t limit = 0) {
  for (const std::size_t drip : {1u, 7u, 3000u, 1u << 20}) {
    const auto examples = Parse(text, limit, drip);
    ASSERT_TRUE(examples.ok()) << text << examples.status().ToString();
    EXPECT_TRUE(*examples == expected) << text;
  }
}

TEST(CsvTest, ReadsLinesWithEveryEnd) {
  for (const std::string end : {"\n", "\r\n"}) {
    for (const char* header : {"", "label,1x1,1x2", "Label,a,b"}) {
      for (const std::string& final_end : {std::string(), end}) {
        ExpectExamples((*header == '\0' ? "" : header + end) + "5,0,255" + end + "255,12,7" + end +
                           "0,100,99" + final_end,
                       {{0, 255, 12, 7, 100, 99}, {5, 255, 0}});
      }
    }
  }
}

TEST(CsvTest, ReadsAsManyLinesAsTheLimitSays) {
  const std::string text = "1,7\n2,8\n3,9\nnonsense\n";
  ExpectExamples(text, {{7, 8}, {1, 2}}, 2);
  ExpectExamples(text, {{7, 8, 9}, {1, 2, 3}}, 3);
  EXPECT_THAT(Parse(text, 4), Fails(Code::kInvalidArgument, "d/some.csv:4: "));
  ExpectExamples("1,7", {{7}, {1}}, 9);
  ExpectExamples("label,p\n" + text, {{7}, {1}}, 1);  // the header is no example
}

TEST(CsvTest, ReportsProgressEachTenThousandExamples) {
  std::string text;
  for (int i = 0; i < 20'001; ++i) text += "7,0\n";
  std::vector<std::pair<std::string, std::uint32_t>> told;
  const auto examples = Parse(text, 0, 1 << 20, [&](const std::string& name, std::uint32_t count) {
    told.emplace_back(name, count);
  });
  ASSERT_TRUE(examples.ok());
  EXPECT_EQ(examples->labels.size(), 20'001u);
  EXPECT_THAT(told, ElementsAre(Pair("d/some.csv", 10'000u), Pair("d/some.csv", 20'000u)));
}

TEST(CsvTest, NamesLineColumnAndValueThatIsWrong) {
  // With what is shown of them.
  std::vector<std::pair<std::string, std::string>> values = {
      {"\t5", "\"\\x095\""},
      {"5\r", "\"5\\x0d\""},
      {std::string("\0", 1), "\"\\x00\""},
      {"\xef", "\"\\xef\""},
      {std::string(40, '9'), fmt::format("\"{}...\"", std::string(32, '9'))},
  };
  for (const char* value : {"", "-3", "256", "1000", " 5", "5 ", "+5", "5.0", "1e1", "abc", "\"5\"",
                            "0x1", "nan", "99999999999999999999"}) {
    values.emplace_back(value, fmt::format("\"{}\"", value));
  }
  const std::string columns[] = {"1 (the label)", "2 (pixel 0)", "3 (pixel 1)", "4 (pixel 2)"};
  for (std::size_t at = 0; at < std::size(columns); ++at) {
    for (const auto& [value, shown] : values) {
      if (at == 3 && value == "5\r") continue;  // that is a line's end
      std::string fields[] = {"5", "1", "2", "3"};
      fields[at] = value;
      EXPECT_THAT(
          Parse("5,1,2,3\n5,1,2,3\n" + fields[0] + "," + fields[1] + "," + fields[2] + "," +
                fields[3] + "\n"),
          Fails(Code::kInvalidArgument, "d/some.csv:3: column " + columns[at] + " is " + shown +
                                            ", but it must be an integer from 0 to 255"));
    }
  }
}

TEST(CsvTest, AcceptsLeadingZerosAsPythonDoes) {
  ExpectExamples("0000255,00,007\n0255,0000000000000000000012,1\n", {{0, 7, 12, 1}, {255, 255}});
}

TEST(CsvTest, SaysWhatIsWrongWithAText) {
  std::string zeros;  // of 784 columns
  for (int i = 0; i < 783; ++i) zeros += "0,";
  const std::pair<std::string, std::string> cases[] = {
      // A header is told by its first column, and is the first line.
      {"label,a\nlabel,a\n5,1", ":2: column 1 (the label) is \"label\""},
      {"label,a,x\n5,1",
       ":2: the line has 2 comma-separated columns, but the first one has 3: "
       "repair one of them"},
      {"klasse,a\n5,1", ":1: column 1 (the label) is \"klasse\""},
      {"label,a\n", " holds a header line and no examples"},
      // Other numbers of columns.
      {"5,1\n5,1,0\n", ":2: the line has 3 comma-separated columns"},
      {"5,1,\n", ":1: column 3 (pixel 1) is \"\""},
      {",5,1", ":1: column 1 (the label) is \"\""},
      {zeros + "0\n",
       ":1: the line has 784 comma-separated columns, but a label and the 784 pixels "
       "of MNIST make 785: put the label first"},
      {"5,1\n5\n", ":2: the line has 1 comma-separated column,"},
      {"5;1\n", ":1: the line has 1 comma-separated column,"},
      // Nothing, where something should be.
      {"", " is empty: "},
      {"\n5,1", ":1: the line is empty"},
      {"5,1\n\n", ":2: the line is empty"},
      {"5,1\r\n\r\n", ":2: the line is empty"},
      // A counting pass that believed this would ask for 784 MB.
      {std::string(1'000'000, '\n'), ":1: the line is empty"},
      // Lines without end.
      {"5,1\n" + std::string(65'537, '1'), ":2: the line has more than 65536 bytes"},
      {"5,1\n" + std::string(3'000'000, '1'), ":2: the line has more than 65536 bytes"},
      {std::string((64u << 20) + 1, '1'), ":1: the line has more than 67108864 bytes"},
  };
  for (const auto& [text, says] : cases) {
    for (const std::size_t drip : {40'000u, 1u << 20}) {
      EXPECT_THAT(Parse(text, 0, drip), Fails(Code::kInvalidArgument, "d/some.csv" + says));
    }
  }
}

TEST(CsvTest, NoticesAFileThatChangedAfterItWasCounted) {
  const std::string text = "1,7\n2,8\n";
  const auto read = [&](std::size_t count, bool to_the_end) {
    Bytes images(count), labels(count);
    SpanSource source(std::as_bytes(std::span(text)));
    return ReadCsv(source, "d/some.csv", to_the_end, std::as_writable_bytes(std::span(images)),
                   std::as_writable_bytes(std::span(labels)));
  };
  EXPECT_TRUE(read(2, true).ok());
  EXPECT_TRUE(read(1, false).ok());
  EXPECT_THAT(read(1, true), Fails(Code::kFailedPrecondition, "read (it has more than"));
  EXPECT_THAT(read(3, true), Fails(Code::kFailedPrecondition, "read (it has fewer than"));
  EXPECT_THAT(read(3, false), Fails(Code::kFailedPrecondition));
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
  if (values.size() < 2) return {};
  return values;
}

TEST(CsvTest, AgreesWithAReferenceOnRandomlyDamagedLines) {
  std::mt19937 random(7);
  constexpr char kCharacters[] = "0123456789,,,  \t\r;.-+\"exnN\x7f";
  int accepted = 0, refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string line;
    for (std::size_t i = 0; i < 20; ++i) {
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

}  // namespace
}  // namespace passel

// The bytes of an event file, against records that event_golden.py makes without our code.

#include "io/event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "io/event_record.h"
#include "io/value_histogram.h"

namespace passel {
namespace {

using ::testing::ElementsAre;

const std::map<std::string, std::string>& Golden() {
  static const std::map<std::string, std::string> golden = {
#include <event_golden.inc>
  };
  return golden;
}

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[c & 15];
  }
  return hex;
}

std::string RecordOf(const Event& event) {
  std::vector<std::string> left_out;
  const Result<std::string> data = EncodeEvent(event, &left_out);
  EXPECT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_THAT(left_out, ::testing::IsEmpty());
  std::string record;
  AppendRecord(*data, &record);
  return Hex(record);
}

TEST(EventRecordTest, TheCrcIsCastagnolis) {
  // RFC 3720, B.4.
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62A8AB43u);
}

TEST(EventTest, RecordsAreByteForByteWhatTheFormatSays) {
  const std::vector<std::pair<std::string, Event>> events = {
      {"version", {1700000000, 0, FileVersion{}}},
      {"start", {1700000000.25, 7, SessionLog{SessionLog::Status::kStart}}},
      {"stop", {1700000001.5, 0, SessionLog{SessionLog::Status::kStop}}},
      {"checkpoint",
       {1700000001.5, std::int64_t{1} << 40,
        SessionLog{SessionLog::Status::kCheckpoint, "d/model.ckpt-7"}}},
      {"scalars",
       {1700000002, 100,
        Summary{{"loss", 0.75}, {"none", 0.0}, {"inf", -std::numeric_limits<double>::infinity()}}}},
      {"histogram",
       {1700000002, 100,
        Summary{{"hid_w", std::vector<float>{0.F, -0.F, 1, 1, -1, 0.5F, 0x1p-41F, -0x1p-41F,
                                             0x1p70F, -0x1p70F, 0x1p-149F, 3, -1024}}}}},
      {"text", {1700000002, 0, Summary{{"model", std::string("| a | é |")}}}},
      {"graph",
       {1700000002, 7, Graph{{"x", "Placeholder"}, {"y", "MatMul", "/job:worker", {"x", "w"}}}}},
  };
  EXPECT_EQ(events.size(), Golden().size());
  for (const auto& [name, event] : events) {
    EXPECT_EQ(RecordOf(event), Golden().at(name)) << name;
  }
}

TEST(EventTest, ATagThatIsThereTwiceIsRefused) {
  std::vector<std::string> left_out;
  const Result<std::string> data =
      EncodeEvent({1, 1, Summary{{"a", 1.0}, {"b", 1.0}, {"a", 2.0}}}, &left_out);
  EXPECT_EQ(data.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(data.status().message(), "Duplicate tag a found in summary inputs");
}

TEST(EventTest, AHistogramOfWhatIsNoNumberIsLeftOutAndTheRestStays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<std::string> left_out;
  const Result<std::string> data = EncodeEvent({1, 1,
                                                Summary{{"a", std::vector<float>{1, nan}},
                                                        {"b", std::vector<float>{-infinity, nan}},
                                                        {"loss", std::nan("")}}},
                                               &left_out);
  ASSERT_TRUE(data.ok());
  EXPECT_THAT(left_out, ElementsAre("Nan in summary histogram for: a",
                                    "Infinity in summary histogram for: b"));
  EXPECT_EQ(*data, EncodeEvent({1, 1, Summary{{"loss", std::nan("")}}}, &left_out).value());
}

TEST(EventTest, TheTextOfAGraphQuotesNames) {
  const Graph graph = {{"a\"\\\n\xc3\xa9", "Variable", "/job:ps", {"b"}, {{784, 100}}}};
  EXPECT_EQ(GraphText(graph), R"(node {
  name: "a\"\\\012\303\251"
  op: "Variable"
  input: "b"
  device: "/job:ps"
  attr {
    key: "dtype"
    value { type: DT_FLOAT }
  }
  attr {
    key: "shape"
    value {
      shape {
        dim { size: 784 }
        dim { size: 100 }
      }
    }
  }
}
)");
}

std::size_t BucketByTheBook(float value) {
  const auto limits = HistogramLimits();
  return static_cast<std::size_t>(std::upper_bound(limits.begin(), limits.end(), double{value}) -
                                  limits.begin());
}

// The only bucket with a value: its limit is the first one above.
void ExpectBucketByTheBook(float value) {
  const ValueHistogram histogram = HistogramOf({&value, 1}, "a").value();
  const auto one = std::ranges::find(histogram.counts, 1.0);
  ASSERT_NE(one, histogram.counts.end()) << value;
  const auto at = static_cast<std::size_t>(one - histogram.counts.begin());
  ASSERT_EQ(histogram.limits[at], HistogramLimits()[BucketByTheBook(value)])
      << std::hexfloat << value;
}

TEST(ValueHistogramTest, EveryValueIsInTheBucketBelowTheFirstLimitAboveIt) {
  const auto limits = HistogramLimits();
  ASSERT_EQ(limits.size(), 1551u);
  EXPECT_TRUE(std::ranges::is_sorted(limits));
  for (const double limit : limits) {
    const auto near = static_cast<float>(limit);
    if (!std::isfinite(near)) continue;
    for (const float value :
         {std::nextafterf(near, -HUGE_VALF), near, std::nextafterf(near, HUGE_VALF)}) {
      if (std::isfinite(value)) ExpectBucketByTheBook(value);
    }
  }
  for (const float value : {FLT_MAX, -FLT_MAX, FLT_MIN, -FLT_MIN, 1e-45F, -1e-45F, 0.F, -0.F}) {
    ExpectBucketByTheBook(value);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isfinite(value)) ExpectBucketByTheBook(value);
  }
}

TEST(ValueHistogramTest, WithoutAValueThereIsOneBucket) {
  const ValueHistogram histogram = HistogramOf({}, "a").value();
  EXPECT_EQ(histogram.num, 0);
  EXPECT_THAT(histogram.limits, ElementsAre(DBL_MAX));
  EXPECT_THAT(histogram.counts, ElementsAre(0));
}

}  // namespace
}  // namespace passel

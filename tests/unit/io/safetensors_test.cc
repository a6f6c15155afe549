// What a correct file means, what the writer writes, and what damage does.

#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/random.h"
#include "unit/io/safetensors_helpers.h"

namespace passel {
namespace {

using test::AsBytes;
using test::BrokenRule;
using test::Bytes;
using test::FileOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::span<const std::byte> Raw(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

/// A file of the reference implementation: hid_w F32[2,3], hid_b F32[2], global_step I64[].
Bytes ReferenceFile() {
  return {
#include "unit/io/safetensors_golden.inc"
  };
}

TEST(SafetensorsTest, ReadsAFileOfTheReferenceImplementation) {
  const Bytes bytes = ReferenceFile();
  const auto file = ParseSafetensors(AsBytes(bytes));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(BrokenRule(AsBytes(bytes), *file), "");
  EXPECT_EQ(file->metadata, (SafetensorsMetadata{{"format", "np"}}));
  ASSERT_EQ(file->tensors.size(), 3u);

  const TensorView* const hid_w = file->Find("hid_w");
  ASSERT_NE(hid_w, nullptr);
  EXPECT_EQ(hid_w->dtype, DType::kF32);
  EXPECT_THAT(hid_w->shape, ElementsAre(2, 3));
  std::vector<float> values(6);
  ASSERT_EQ(hid_w->data.size(), 24u);
  std::memcpy(values.data(), hid_w->data.data(), 24);
  EXPECT_THAT(values, ElementsAre(0.0f, 0.25f, 0.5f, 0.75f, 1.0f, 1.25f));

  const TensorView* const step = file->Find("global_step");
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->dtype, DType::kI64);
  EXPECT_TRUE(step->shape.empty());
  std::int64_t value = 0;
  ASSERT_EQ(step->data.size(), 8u);
  std::memcpy(&value, step->data.data(), 8);
  EXPECT_EQ(value, 123456789012);
  EXPECT_EQ(file->Find("hid"), nullptr);
}

TEST(SafetensorsTest, WritesTheSameBytesAsTheReferenceImplementation) {
  const std::vector<float> hid_w{0.0f, 0.25f, 0.5f, 0.75f, 1.0f, 1.25f};
  const std::vector<float> hid_b{-1.0f, 2.0f};
  const std::vector<std::int64_t> step{123456789012};
  const std::vector<TensorView> tensors{{"hid_w", DType::kF32, {2, 3}, Raw(hid_w)},
                                        {"global_step", DType::kI64, {}, Raw(step)},
                                        {"hid_b", DType::kF32, {2}, Raw(hid_b)}};
  const auto bytes = SerializeSafetensors(tensors, {{"format", "np"}});
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  EXPECT_EQ(*bytes, ReferenceFile());
}

TEST(SafetensorsTest, DataStartsAtAMultipleOfEightAndIsSortedBySizeThenName) {
  const std::vector<std::uint8_t> one{1};
  const std::vector<float> four{4};
  const std::vector<double> eight{8};
  for (int length = 1; length <= 17; ++length) {
    const std::string z(static_cast<std::size_t>(length), 'z');
    const std::vector<TensorView> tensors{{"b1", DType::kU8, {1}, Raw(one)},
                                          {"a1", DType::kU8, {}, Raw(one)},
                                          {z, DType::kF32, {1}, Raw(four)},
                                          {"a4", DType::kF32, {1}, Raw(four)},
                                          {"a8", DType::kF64, {1}, Raw(eight)}};
    const auto bytes = SerializeSafetensors(tensors, {});
    ASSERT_TRUE(bytes.ok());
    std::uint64_t n = 0;
    std::memcpy(&n, bytes->data(), 8);
    EXPECT_EQ(n % 8, 0u);
    const auto file = ParseSafetensors(AsBytes(*bytes));
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    std::vector<std::string> names;
    for (const TensorView& tensor : file->tensors) names.push_back(tensor.name);
    EXPECT_THAT(names, ElementsAre("a8", "a4", z, "a1", "b1"));
  }
}

TEST(SafetensorsTest, RandomTensorsSurviveTheRoundTrip) {
  Random random(20240817);
  for (int round = 0; round < 300; ++round) {
    std::vector<TensorView> tensors;
    std::vector<Bytes> memory;
    const std::uint64_t count = random.Below(12);
    memory.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      TensorView tensor;
      tensor.name = "v" + std::to_string(i) + (random.Below(2) != 0 ? "/é\"\\" : "");
      tensor.dtype = static_cast<DType>(random.Below(4));
      std::int64_t elements = 1;
      for (std::uint64_t rank = random.Below(5); rank > 0; --rank) {
        tensor.shape.push_back(static_cast<std::int64_t>(random.Below(5)));
        elements *= tensor.shape.back();
      }
      memory.emplace_back(static_cast<std::size_t>(elements) * DTypeBytes(tensor.dtype));
      for (std::uint8_t& byte : memory.back()) byte = static_cast<std::uint8_t>(random.Next());
      tensor.data = AsBytes(memory.back());
      tensors.push_back(std::move(tensor));
    }
    SafetensorsMetadata metadata;
    for (std::uint64_t i = random.Below(3); i > 0; --i) {
      metadata["key\n" + std::to_string(i)] = std::string("\0\x01\x1f \x7f/", 6) + "中";
    }
    const auto bytes = SerializeSafetensors(tensors, metadata);
    ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
    const auto file = ParseSafetensors(AsBytes(*bytes));
    ASSERT_TRUE(file.ok()) << file.status().ToString() << " in round " << round;
    EXPECT_EQ(BrokenRule(AsBytes(*bytes), *file), "") << "in round " << round;
    EXPECT_EQ(file->metadata, metadata);
    ASSERT_EQ(file->tensors.size(), tensors.size());
    for (const TensorView& tensor : tensors) {
      const TensorView* const found = file->Find(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_EQ(found->dtype, tensor.dtype);
      EXPECT_EQ(found->shape, tensor.shape);
      EXPECT_TRUE(std::equal(found->data.begin(), found->data.end(), tensor.data.begin(),
                             tensor.data.end()));
    }
  }
}

TEST(SafetensorsTest, EveryDTypeKnowsItsNameAndBytes) {
  const std::vector<std::pair<std::string, std::size_t>> table{
      {"U8", 1}, {"F32", 4}, {"F64", 8}, {"I64", 8}};
  for (const auto& [name, bytes] : table) {
    const auto dtype = ParseDType(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    EXPECT_EQ(DTypeName(*dtype), name);
    EXPECT_EQ(DTypeBytes(*dtype), bytes) << name;
  }
  for (const char* name : {"", "f32", "F32 ", "F", "F16", "BF16", "BOOL", "I32", "F128"}) {
    EXPECT_FALSE(ParseDType(name).has_value()) << name;
  }
}

TEST(SafetensorsTest, LegalButUnusualFilesAreRead) {
  const std::string f4 = std::string(4, '\x01');
  const std::vector<std::pair<std::string, std::string>> files{
      {"{}", ""},
      {"{}      ", ""},
      {R"({"__metadata__":{}})", ""},
      {R"({"__metadata__":{"":"","\u0000":"\u0000"}})", ""},
      {"{ \"a\" :\n{\t\"dtype\" : \"F32\" , \"shape\" : [ 1 , 1 ] ,\r\"data_offsets\":[ 0 , 4 ] } "
       "} ",
       f4},
      {R"({"a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"}})", f4},
      {R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", f4},
      {R"({"\u0061\ud83d\udc17\/":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", f4},
      {R"({"a":{"dt\u0079pe":"F\u00332","shape":[1],"data_offsets":[0,4]}})", f4},
      // Zero-sized tensors share an offset with each other and with their neighbours.
      {R"({"z":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},)"
       R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("y":{"dtype":"I64","shape":[3,0,9999999],"data_offsets":[0,0]}})",
       f4},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,4],"data_offsets":[0,4]}})", f4},
      {"{\"" + std::string(256, 'n') + R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", f4},
  };
  for (const auto& [header, data] : files) {
    const Bytes bytes = FileOf(header, data);
    const auto file = ParseSafetensors(AsBytes(bytes));
    ASSERT_TRUE(file.ok()) << header << ": " << file.status().ToString();
    EXPECT_EQ(BrokenRule(AsBytes(bytes), *file), "") << header;
  }
}

Bytes SmallFile() {
  const std::vector<float> w{1, 2, 3};
  const std::vector<std::int64_t> step{7};
  const std::vector<TensorView> tensors{{"w", DType::kF32, {3}, Raw(w)},
                                        {"empty", DType::kF32, {0}, {}},
                                        {"step", DType::kI64, {}, Raw(step)}};
  auto bytes = SerializeSafetensors(tensors, {{"k", "v"}});
  PASSEL_CHECK(bytes.ok(), "the example is correct");
  return *std::move(bytes);
}

TEST(SafetensorsTest, AFileCutOffAtAnyByteIsRefused) {
  const Bytes whole = SmallFile();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A copy of exactly this size, so that AddressSanitizer sees a read behind its end.
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const auto file = ParseSafetensors(AsBytes(cut));
    ASSERT_FALSE(file.ok()) << "cut to " << size << " bytes";
    EXPECT_EQ(file.status().code(), Code::kDataLoss) << file.status().ToString();
  }
}

TEST(SafetensorsTest, AChangedHeaderByteIsRefusedOrTheFileStillKeepsAllRules) {
  const Bytes whole = SmallFile();
  std::uint64_t n = 0;
  std::memcpy(&n, whole.data(), 8);
  int accepted = 0;
  int refused = 0;
  for (std::size_t at = 0; at < 8 + n; ++at) {
    for (int change = 1; change < 256; ++change) {
      Bytes flipped = whole;
      flipped[at] = static_cast<std::uint8_t>(flipped[at] ^ change);
      const auto file = ParseSafetensors(AsBytes(flipped));
      if (!file.ok()) {
        ++refused;
        continue;
      }
      ++accepted;
      ASSERT_EQ(BrokenRule(AsBytes(flipped), *file), "") << "byte " << at << " ^ " << change;
    }
  }
  // Another name is another legal file; most other changes are not.
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 10 * accepted);
}

TEST(SafetensorsTest, TheWriterRefusesWhatTheReaderWould) {
  const std::vector<float> four(4);
  const auto tensor = [&](std::string name, std::vector<std::int64_t> shape) {
    return TensorView{std::move(name), DType::kF32, std::move(shape), Raw(four)};
  };
  const auto error = [](const std::vector<TensorView>& tensors,
                        const SafetensorsMetadata& metadata = {}) {
    const auto bytes = SerializeSafetensors(tensors, metadata);
    EXPECT_EQ(bytes.status().code(), Code::kInvalidArgument);
    return bytes.status().message();
  };
  EXPECT_THAT(error({tensor("a", {5})}), HasSubstr("cannot fill 16 bytes"));
  EXPECT_THAT(error({tensor("a", {-4})}), HasSubstr("no file can hold that"));
  EXPECT_THAT(error({tensor("a", {std::int64_t{1} << 62, 4})}), HasSubstr("no file can hold that"));
  EXPECT_THAT(error({tensor("a", {1, 1, 1, 1, 1, 1, 1, 1, 4})}), HasSubstr("9 dimensions"));
  EXPECT_THAT(error({tensor("a", {4}), tensor("b", {4}), tensor("a", {4})}),
              HasSubstr("two tensors are named \"a\""));
  EXPECT_THAT(error({tensor("__metadata__", {4})}), HasSubstr("not free as a tensor name"));
  EXPECT_THAT(error({tensor(std::string(257, 'a'), {4})}), HasSubstr("more than 256 bytes"));
  EXPECT_THAT(error({tensor("a\nb", {4})}), HasSubstr("control character"));
  EXPECT_THAT(error({tensor("a\xff", {4})}), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(error({}, {{"k", "\xc0\x80"}}), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(error({}, {{"\xed\xa0\x80", "v"}}), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(error({}, {{"k", std::string(kSafetensorsMaxHeaderBytes, 'v')}}),
              HasSubstr("more than 8388608"));

  std::vector<TensorView> many;
  for (int i = 0; i < 20'000; ++i) many.push_back(tensor("v" + std::to_string(i), {4}));
  const auto most = SerializeSafetensors(many, {});
  ASSERT_TRUE(most.ok()) << most.status().ToString();
  EXPECT_TRUE(ParseSafetensors(AsBytes(*most)).ok());
  many.push_back(tensor("v20000", {4}));
  EXPECT_THAT(error(many), HasSubstr("20001 tensors are more than the 20000"));
}

TEST(SafetensorsTest, TheLargestHeaderIsWrittenAndRead) {
  // {"__metadata__":{"k":"..."}} has 25 bytes around the value.
  SafetensorsMetadata metadata{{"k", std::string(kSafetensorsMaxHeaderBytes - 25, 'v')}};
  const auto largest = SerializeSafetensors({}, metadata);
  ASSERT_TRUE(largest.ok()) << largest.status().ToString();
  EXPECT_EQ(largest->size(), 8u + kSafetensorsMaxHeaderBytes);
  const auto file = ParseSafetensors(AsBytes(*largest));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->metadata, metadata);
  metadata["k"] += 'v';
  EXPECT_FALSE(SerializeSafetensors({}, metadata).ok());
}

}  // namespace
}  // namespace passel

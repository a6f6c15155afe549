#include "data/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/unit/data/test_files.h"
#include "tests/unit/data/zip_files.h"

namespace passel {
namespace {

using test::Bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<NpyHeader> Read(const Bytes& file) {
  SpanSource source(test::View(file));
  return ReadNpyHeader(source, "some array");
}

TEST(NpyTest, ReadsEveryVersionAndNotOneByteMore) {
  for (const int major : {1, 2, 3}) {
    const Bytes file = test::Npy("|u1", "(2, 28, 28)", {1, 2, 3}, major);
    SpanSource source(test::View(file));
    const auto header = ReadNpyHeader(source, "some array");
    ASSERT_TRUE(header.ok()) << header.status().ToString();
    EXPECT_EQ(header->kind, 'u');
    EXPECT_EQ(header->width, 1u);
    EXPECT_FALSE(header->fortran_order);
    EXPECT_THAT(header->shape, ElementsAre(2, 28, 28));
    EXPECT_EQ(header->header_bytes, file.size() - 3);
    std::byte next{};
    ASSERT_EQ(*source.Read(std::span(&next, 1)), 1u);
    EXPECT_EQ(next, std::byte{1});
  }
}

TEST(NpyTest, RefusesEveryShorterHeader) {
  for (const int major : {1, 2}) {
    const Bytes file = test::Npy("|u1", "(2,)", {}, major);
    for (std::size_t size = 0; size < file.size(); ++size) {
      const auto header =
          Read(Bytes(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size)));
      ASSERT_FALSE(header.ok()) << size;
      EXPECT_EQ(header.status().code(), Code::kDataLoss) << size << header.status().ToString();
    }
  }
}

TEST(NpyTest, RefusesOtherMagicVersionsAndLongHeaders) {
  Bytes file = test::Npy("|u1", "(2,)", {});
  file[0] = 0x92;
  EXPECT_THAT(Read(file).status().message(), HasSubstr("is no npy file"));
  for (const int major : {0, 4, 255}) {
    file = test::Npy("|u1", "(2,)", {});
    file[6] = static_cast<std::uint8_t>(major);
    EXPECT_THAT(Read(file).status().message(),
                HasSubstr("of version " + std::to_string(major) + ".0"));
  }
  file[6] = 1;
  file[7] = 1;
  EXPECT_THAT(Read(file).status().message(), HasSubstr("of version 1.1"));
  file = test::Npy("|u1", "(2,)", {}, 2);
  file[11] = 0xff;  // 4 GB of header
  EXPECT_THAT(Read(file).status().message(), HasSubstr("more than the 65536 allowed"));
}

TEST(NpyTest, UnderstandsWhatNumPyWrites) {
  struct Case {
    std::string text;
    char order, kind;
    unsigned width;
    bool fortran;
    std::vector<std::uint64_t> shape;
  };
  const Case cases[] = {
      {"{'descr': '|u1', 'fortran_order': False, 'shape': (60000, 28, 28), }",
       '|',
       'u',
       1,
       false,
       {60000, 28, 28}},
      {"{'descr': '<i8', 'fortran_order': False, 'shape': (60000,), }    \n",
       '<',
       'i',
       8,
       false,
       {60000}},
      {"{'shape': (7L, 784L), 'fortran_order': True, 'descr': '>u4'}", '>', 'u', 4, true, {7, 784}},
      {"{\"descr\": \"u1\", \"fortran_order\": False, \"shape\": ()}", '|', 'u', 1, false, {}},
      {"{'descr': '<u1', 'fortran_order': False, 'shape': (1,)}", '|', 'u', 1, false, {1}},
      {"{'descr': '=i2', 'fortran_order': False, 'shape': (0,)}", '<', 'i', 2, false, {0}},
      {"{'descr':'<f4','fortran_order':False,'shape':(18446744073709551615,2,)}",
       '<',
       'f',
       4,
       false,
       {18446744073709551615u, 2}},
      {"{'descr': '<U12', 'fortran_order': False, 'shape': (1,)}", '<', 'U', 12, false, {1}},
  };
  for (const Case& c : cases) {
    const auto header = ParseNpyDictionary(c.text, "x");
    ASSERT_TRUE(header.ok()) << c.text << header.status().ToString();
    EXPECT_EQ(header->byte_order, c.order) << c.text;
    EXPECT_EQ(header->kind, c.kind) << c.text;
    EXPECT_EQ(header->width, c.width) << c.text;
    EXPECT_EQ(header->fortran_order, c.fortran) << c.text;
    EXPECT_EQ(header->shape, c.shape) << c.text;
  }
}

TEST(NpyTest, RefusesWhatNumPyDoesNotWrite) {
  const std::string d = "'descr': '|u1'", f = "'fortran_order': False", s = "'shape': (1,)";
  const std::string good = "{" + d + ", " + f + ", " + s + "}";
  ASSERT_TRUE(ParseNpyDictionary(good, "x").ok());
  const std::string bad[] = {
      "",
      "{}",
      "[]",
      "{" + d + ", " + f + "}",
      "{" + d + ", " + s + "}",
      "{" + f + ", " + s + "}",
      "{" + d + ", " + d + ", " + f + ", " + s + "}",
      "{" + d + ", " + f + ", " + s + ", 'x': 1}",
      "{" + d + " " + f + ", " + s + "}",
      "{" + d + ",, " + f + ", " + s + "}",
      good + "}",
      good + " 1",
      "{" + d + ", 'fortran_order': 0, " + s + "}",
      "{" + d + ", 'fortran_order': 'False', " + s + "}",
      "{" + d + ", " + f + ", 'shape': (5)}",
      "{" + d + ", " + f + ", 'shape': 5}",
      "{" + d + ", " + f + ", 'shape': (-5,)}",
      "{" + d + ", " + f + ", 'shape': (,)}",
      "{" + d + ", " + f + ", 'shape': (5.0,)}",
      "{" + d + ", " + f + ", 'shape': (1 2)}",
      "{" + d + ", " + f + ", 'shape': (18446744073709551616,)}",
      "{" + d + ", " + f + ", 'shape': (1,",
      "{'descr': '', " + f + ", " + s + "}",
      "{'descr': '|', " + f + ", " + s + "}",
      "{'descr': 'u', " + f + ", " + s + "}",
      "{'descr': 'u0', " + f + ", " + s + "}",
      "{'descr': 'u99999', " + f + ", " + s + "}",
      "{'descr': '|i8', " + f + ", " + s + "}",
      "{'descr': '<<u1', " + f + ", " + s + "}",
      "{'descr': [('a', '|u1')], " + f + ", " + s + "}",
      "{'descr': '\\x75', " + f + ", " + s + "}",
      "{'descr': '|u1, " + f + ", " + s + "}",
  };
  for (const std::string& text : bad) {
    const auto header = ParseNpyDictionary(text, "x");
    EXPECT_EQ(header.status().code(), Code::kInvalidArgument) << text;
  }
  std::string deep = "{" + d + ", " + f + ", 'shape': (";
  for (int i = 0; i < 33; ++i) deep += "1,";
  EXPECT_FALSE(ParseNpyDictionary(deep + ")}", "x").ok());
}

TEST(NpyTest, WritesShapesAsPythonDoes) {
  EXPECT_EQ(NpyShapeText({}), "()");
  EXPECT_EQ(NpyShapeText({5}), "(5,)");
  EXPECT_EQ(NpyShapeText({5, 28}), "(5, 28)");
}

}  // namespace
}  // namespace passel

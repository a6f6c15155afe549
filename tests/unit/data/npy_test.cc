#include "data/npy.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/data/test_files.h"
#include "tests/unit/data/zip_files.h"

namespace passel {
namespace {

using test::Bytes;
using test::Fails;
using ::testing::ElementsAre;

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
      ASSERT_THAT(Read(test::First(file, size)), Fails(Code::kDataLoss)) << size;
    }
  }
}

TEST(NpyTest, RefusesOtherMagicVersionsAndLongHeaders) {
  const struct {
    std::size_t at;
    std::uint8_t byte;
    int major;
    const char* says;
  } cases[] = {
      {0, 0x92, 1, "is no npy file"}, {6, 0, 1, "of version 0.0"},
      {6, 4, 1, "of version 4.0"},    {6, 255, 1, "of version 255.0"},
      {7, 1, 1, "of version 1.1"},    {11, 0xff, 2, "more than the 65536 allowed"},  // 4 GB
  };
  for (const auto& [at, byte, major, says] : cases) {
    Bytes file = test::Npy("|u1", "(2,)", {}, major);
    file[at] = byte;
    EXPECT_THAT(Read(file), Fails(Code::kInvalidArgument, says));
  }
}

TEST(NpyTest, UnderstandsWhatNumPyWrites) {
  // A header, and what it says: byte order, kind, width, "F" for Fortran's order, and the shape.
  const std::pair<std::string, std::string> cases[] = {
      {"{'descr': '|u1', 'fortran_order': False, 'shape': (60000, 28, 28), }",
       "| u 1 C (60000, 28, 28)"},
      {"{'descr': '<i8', 'fortran_order': False, 'shape': (60000,), }    \n", "< i 8 C (60000,)"},
      {"{'shape': (7L, 784L), 'fortran_order': True, 'descr': '>u4'}", "> u 4 F (7, 784)"},
      {"{\"descr\": \"u1\", \"fortran_order\": False, \"shape\": ()}", "| u 1 C ()"},
      {"{'descr': '<u1', 'fortran_order': False, 'shape': (1,)}", "| u 1 C (1,)"},
      {"{'descr': '=i2', 'fortran_order': False, 'shape': (0,)}", "< i 2 C (0,)"},
      {"{'descr':'<f4','fortran_order':False,'shape':(18446744073709551615,2,)}",
       "< f 4 C (18446744073709551615, 2)"},
      {"{'descr': '<U12', 'fortran_order': False, 'shape': (1,)}", "< U 12 C (1,)"},
  };
  for (const auto& [text, says] : cases) {
    const auto header = ParseNpyDictionary(text, "x");
    ASSERT_TRUE(header.ok()) << text << header.status().ToString();
    EXPECT_EQ(fmt::format("{} {} {} {} {}", header->byte_order, header->kind, header->width,
                          header->fortran_order ? 'F' : 'C', NpyShapeText(header->shape)),
              says)
        << text;
  }
}

TEST(NpyTest, RefusesWhatNumPyDoesNotWrite) {
  const std::string d = "'descr': '|u1'", f = "'fortran_order': False", s = "'shape': (1,)";
  const std::string good = "{" + d + ", " + f + ", " + s + "}";
  ASSERT_TRUE(ParseNpyDictionary(good, "x").ok());
  std::vector<std::string> bad = {
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
      "{" + d + ", " + f + ", 'shape': (1,",
      "{'descr': '|u1, " + f + ", " + s + "}",
  };
  for (const char* order : {"0", "'False'"}) {
    bad.push_back("{" + d + ", 'fortran_order': " + order + ", " + s + "}");
  }
  std::string deep = "(";
  for (int i = 0; i < 33; ++i) deep += "1,";
  for (const std::string& shape : {std::string("(5)"), std::string("5"), std::string("(-5,)"),
                                   std::string("(,)"), std::string("(5.0,)"), std::string("(1 2)"),
                                   std::string("(18446744073709551616,)"), deep + ")"}) {
    bad.push_back("{" + d + ", " + f + ", 'shape': " + shape + "}");
  }
  for (const char* descr :
       {"''", "'|'", "'u'", "'u0'", "'u99999'", "'|i8'", "'<<u1'", "[('a', '|u1')]", "'\\x75'"}) {
    bad.push_back("{'descr': " + std::string(descr) + ", " + f + ", " + s + "}");
  }
  for (const std::string& text : bad) {
    EXPECT_THAT(ParseNpyDictionary(text, "x"), Fails(Code::kInvalidArgument)) << text;
  }
}

}  // namespace
}  // namespace passel

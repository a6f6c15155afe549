// Files made to mislead a reader. Each is refused, and for the reason it was made for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>

#include "io/safetensors.h"
#include "support/hostile_lengths.h"
#include "unit/io/safetensors_helpers.h"

namespace passel {
namespace {

using test::AsBytes;
using test::BrokenRule;
using test::Bytes;
using test::FileOf;
using ::testing::HasSubstr;

constexpr const char* kNotJson = "safetensors header is not JSON";
constexpr const char* kOther = "something other than spaces";

struct Attack {
  std::string what;
  Bytes file;
  Code code;
  std::string reason;  // part of the message
};

/// One entry; four bytes of data fit the default one.
std::string Entry(const std::string& name, const std::string& shape = "[1]",
                  const std::string& offsets = "[0,4]", const std::string& dtype = "F32") {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

std::string Repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

class Corpus {
 public:
  void Malformed(std::string what, const std::string& header, std::string reason,
                 const std::string& data = "abcd") {
    attacks.push_back({std::move(what), FileOf(header, data), Code::kDataLoss, std::move(reason)});
  }
  void OverLimit(std::string what, const std::string& header, std::string reason,
                 const std::string& data = "abcd") {
    attacks.push_back(
        {std::move(what), FileOf(header, data), Code::kInvalidArgument, std::move(reason)});
  }
  std::vector<Attack> attacks;
};

void AddLengths(Corpus* corpus) {
  const std::string header = "{" + Entry("a") + "}";
  const auto with_n = [&](std::uint64_t n, Code code, const std::string& reason) {
    corpus->attacks.push_back(
        {"N = " + std::to_string(n), FileOf(n, header, "abcd"), code, reason});
  };
  with_n(0, Code::kDataLoss, "header of 0 bytes");
  with_n(1, Code::kDataLoss, "header of 1 bytes");
  with_n(7, Code::kDataLoss, kOther);
  with_n(std::uint64_t{1} << 32, Code::kDataLoss, "header of 4294967296 bytes");
  with_n(~std::uint64_t{0}, Code::kDataLoss, "header of 18446744073709551615 bytes");
  with_n(~std::uint64_t{0} - 7, Code::kDataLoss, "header of 18446744073709551608 bytes");
  with_n(header.size() + 5, Code::kDataLoss, "cannot be in a file of");
  with_n(header.size() + 4, Code::kDataLoss, kOther);  // covers the data
  with_n(header.size() - 1, Code::kDataLoss, kNotJson);
  const std::string long_header = "{}" + std::string(kSafetensorsMaxHeaderBytes, ' ');
  corpus->OverLimit("header above 8 MiB", long_header, "more than the 8388608 allowed");
}

void AddLayouts(Corpus* corpus) {
  std::string overlapping = "{";
  for (int i = 0; i < 200'000; ++i) {
    overlapping += (i ? "," : "") + Entry("t" + std::to_string(i));
  }
  corpus->OverLimit("200,000 entries on one range", overlapping + "}", "more than the 8388608");
  std::string fewer = "{";
  for (int i = 0; i < 20'000; ++i) fewer += (i ? "," : "") + Entry("t" + std::to_string(i));
  corpus->Malformed("20,000 entries on one range", fewer + "}", "gap or an overlap");
  std::string too_many = "{";
  for (int i = 0; i < 20'001; ++i) {
    too_many += (i ? "," : "") + Entry("t" + std::to_string(i), "[0]", "[0,0]");
  }
  corpus->OverLimit("20,001 tensors", too_many + "}", "more than 20000 tensors", "");
  const auto two = [](const std::string& a, const std::string& b) {
    return "{" + Entry("a", "[1]", a) + "," + Entry("b", "[1]", b) + "}";
  };
  corpus->Malformed("gap between", two("[0,4]", "[8,12]"), "[8, 12)", "abcdefghijkl");
  corpus->Malformed("gap at the start", "{" + Entry("a", "[1]", "[4,8]") + "}", "[4, 8)",
                    "abcdefgh");
  corpus->Malformed("overlap by one byte", two("[0,4]", "[3,7]"), "[3, 7)", "abcdefg");
  corpus->Malformed("the same range twice", two("[0,4]", "[0,4]"), "gap or an overlap");
  corpus->Malformed("end before begin", "{" + Entry("a", "[1]", "[4,0]") + "}", "[4, 0)");
  corpus->Malformed("end before begin, second", two("[0,4]", "[4,0]"), "[4, 0)");
  corpus->Malformed("data cut off", two("[0,4]", "[4,8]"), "it is cut off", "abcdefg");
  const std::string one = "{" + Entry("a") + "}";
  corpus->Malformed("zip appended", one, "something was appended", "abcdPK\x03\x04");
  corpus->Malformed("ELF appended", one, "something was appended",
                    "abcd\x7f"
                    "ELF");
  corpus->Malformed("one byte appended", one, "something was appended", "abcde");
  corpus->Malformed("data without a tensor", "{}", "something was appended", "x");
}

void AddKeys(Corpus* corpus) {
  corpus->Malformed("duplicate tensor, other offsets",
                    "{" + Entry("a") + "," + Entry("a", "[1]", "[4,8]") + "}",
                    "twice in one object", "abcdefgh");
  corpus->Malformed("duplicate tensor by escape",
                    "{" + Entry("a") + "," + Entry("\\u0061", "[1]", "[4,8]") + "}",
                    "twice in one object", "abcdefgh");
  corpus->Malformed("duplicate __metadata__", R"({"__metadata__":{},"__metadata__":{}})",
                    "twice in one object", "");
  corpus->Malformed("duplicate __metadata__ by escape",
                    R"({"__metadata__":{},"\u005f_metadata__":{}})", "twice in one object", "");
  corpus->Malformed("duplicate metadata key", R"({"__metadata__":{"k":"a","k":"b"}})",
                    "twice in one object", "");
  for (const char* const key : {R"("dtype":"F32")", R"("shape":[1])", R"("data_offsets":[0,4])"}) {
    corpus->Malformed(
        std::string("duplicate inside an entry: ") + key,
        std::string(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],)") + key + "}}",
        "twice in one object");
  }
  corpus->Malformed("extra key", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})",
                    "other keys than");
  corpus->Malformed("no dtype", R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "other keys than");
  corpus->Malformed("no shape", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "other keys than");
  corpus->Malformed("no offsets", R"({"a":{"dtype":"F32","shape":[1]}})", "other keys than");
  corpus->Malformed("empty entry", R"({"a":{}})", "other keys than");
  corpus->Malformed("entry is null", R"({"a":null})", "an entry is no object");
  corpus->Malformed("entry is a list", R"({"a":[]})", "an entry is no object");
  corpus->Malformed("unknown dtype", "{" + Entry("a", "[1]", "[0,4]", "F33") + "}",
                    "none of F32, F64, I64, U8");
  corpus->Malformed("dtype is a number", R"({"a":{"dtype":4,"shape":[1],"data_offsets":[0,4]}})",
                    "a dtype is no string");
  corpus->Malformed("dtype is null", R"({"a":{"dtype":null,"shape":[1],"data_offsets":[0,4]}})",
                    "a dtype is no string");
  for (const char* value : {"1", "null", "[]", "{}", "true", R"({"a":{"b":"c"}})"}) {
    corpus->Malformed(std::string("metadata value ") + value,
                      std::string(R"({"__metadata__":{"k":)") + value + "}}",
                      "a value of the metadata is no string", "");
  }
  for (const char* value : {"1", "null", "[]", R"("text")"}) {
    corpus->Malformed(std::string("metadata is ") + value,
                      std::string(R"({"__metadata__":)") + value + "}", "the metadata is no object",
                      "");
  }
}

void AddNumbers(Corpus* corpus) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> numbers{
      {{"1e2", "1E0", "1.0", "-0", "-1", "18446744073709551617", "\"1\"", "null", "true", "[1]"},
       "no integer without a sign"},
      {{"+1", "01", "00", "00000000000000000001", "0x1", ".5", "1 1", "", "NaN"}, kNotJson}};
  for (const auto& [texts, reason] : numbers) {
    for (const std::string& number : texts) {
      if (!number.empty()) {  // an empty shape is a scalar
        corpus->Malformed("dimension " + number, "{" + Entry("a", "[" + number + "]") + "}",
                          reason);
      }
      corpus->Malformed("begin " + number, "{" + Entry("a", "[1]", "[" + number + ",4]") + "}",
                        reason);
      corpus->Malformed("end " + number, "{" + Entry("a", "[1]", "[0," + number + "]") + "}",
                        reason);
    }
  }
  corpus->Malformed("begin of 2^64 - 1", "{" + Entry("a", "[1]", "[18446744073709551615,4]") + "}",
                    "gap or an overlap");
  corpus->Malformed("end of 2^64 - 1", "{" + Entry("a", "[1]", "[0,18446744073709551615]") + "}",
                    "it is cut off");
  corpus->Malformed("dimension of 2^63", "{" + Entry("a", "[9223372036854775808]") + "}",
                    "above 2^63 - 1");
  corpus->Malformed("dimension of 19 nines", "{" + Entry("a", "[9999999999999999999]") + "}",
                    "above 2^63 - 1");
  const auto shape = [&](const std::string& what, const std::string& text, const std::string& bytes,
                         const std::string& dtype, const std::string& data) {
    corpus->Malformed(what, "{" + Entry("a", text, "[0," + bytes + "]", dtype) + "}", "cannot fill",
                      data);
  };
  shape("product wraps to 0", "[4294967296,4294967296]", "0", "U8", "");
  shape("product wraps to 4", "[6148914691236517205,12]", "4", "U8", "abcd");
  shape("bytes wrap to 0", "[4611686018427387904]", "0", "F32", "");
  shape("bits wrap to 0", "[2305843009213693952]", "0", "U8", "");
  shape("overflow hidden by a zero", "[0,4294967296,4294967296]", "0", "F32", "");
  shape("overflow hidden by a zero at the end", "[4294967296,4294967296,0]", "0", "F32", "");
  shape("too few bytes", "[2]", "4", "F32", "abcd");
  shape("too many bytes", "[1]", "8", "F32", "abcdefgh");
  shape("scalar without data", "[]", "0", "F32", "");
  shape("empty tensor with data", "[0]", "4", "F32", "abcd");
  corpus->OverLimit("rank 9", "{" + Entry("a", "[1,1,1,1,1,1,1,1,1]") + "}", "more than 8");
  corpus->OverLimit("rank 100,000", "{" + Entry("a", "[1" + Repeat(",1", 100'000) + "]") + "}",
                    "more than 8");
  corpus->Malformed("one offset", "{" + Entry("a", "[1]", "[0]") + "}", "are not two");
  corpus->Malformed("three offsets", "{" + Entry("a", "[1]", "[0,4,4]") + "}", "are not two");
  corpus->Malformed("offsets are an object", "{" + Entry("a", "[1]", "{}") + "}", "are not two");
  corpus->Malformed("shape is a number", "{" + Entry("a", "1") + "}", "a shape is no list");
}

void AddText(Corpus* corpus) {
  const std::string good = "{" + Entry("a") + "}";
  corpus->Malformed("byte order mark", "\xef\xbb\xbf" + good, "first byte is not");
  corpus->Malformed("leading space", " " + good, "first byte is not");
  corpus->Malformed("leading newline", "\n" + good, "first byte is not");
  std::string utf16;
  for (const char c : good) utf16 += std::string(1, c) + '\0';
  corpus->Malformed("UTF-16, little-endian", utf16, kOther);
  corpus->Malformed("UTF-16 with mark", "\xff\xfe" + utf16, "first byte is not");
  corpus->Malformed("UTF-16, big-endian", std::string(1, '\0') + utf16, "first byte is not");
  for (const std::string& tail : {std::string("\n"), std::string("\t"), std::string("\r"),
                                  std::string(1, '\0'), std::string(" x"), std::string("//")}) {
    corpus->Malformed("after the last brace: " + tail, good + tail, kOther);
  }
  corpus->Malformed("a second brace", good + "}", kNotJson);
  corpus->Malformed("a second object", good + "{}", kNotJson);
  corpus->Malformed("a zero before the last brace", good + std::string(1, '\0') + "}",
                    "holds a NUL byte");
  const std::vector<std::string> names{"\\ud800",
                                       "\\udc00",
                                       "\\udc00\\udc00",
                                       "\\ud83dx",
                                       "\\ud83d\\n",
                                       "\\ud83d\\ud83d",
                                       "\\udc17\\ud83d",
                                       "\\ud83d\\u0041",
                                       "\\u12",
                                       "\\u00g0",
                                       "\\u+041",
                                       "\\x41",
                                       "\\U00000041",
                                       "\\'",
                                       "a\nb",
                                       "a\tb",
                                       "\x80",
                                       "\xbf",
                                       "\xc0\x80",
                                       "\xc1\xbf",
                                       "\xe0\x80\xaf",
                                       "\xe0\x9f\xbf",
                                       "\xed\xa0\x80",
                                       "\xed\xbf\xbf",
                                       "\xf0\x80\x80\x80",
                                       "\xf0\x8f\xbf\xbf",
                                       "\xf4\x90\x80\x80",
                                       "\xf5\x80\x80\x80",
                                       "\xf8\x88\x80\x80\x80",
                                       "\xff",
                                       "\xc3",
                                       "\xe4\xb8",
                                       "\xf0\x9f\x90"};
  for (const std::string& name : names) {
    corpus->Malformed("name " + name, "{" + Entry(name) + "}", kNotJson);
    corpus->Malformed("metadata value " + name, "{\"__metadata__\":{\"k\":\"" + name + "\"}}",
                      kNotJson, "");
  }
  corpus->Malformed("zero in a name", "{" + Entry(std::string("a\0b", 3)) + "}",
                    "holds a NUL byte");
  for (const char* name :
       {"\\u0000", "a\\u0000b", "\\n", "\\u001f", "\x7f", "\\u007f", "\\u0080", "\xc2\x9f"}) {
    corpus->OverLimit(std::string("control character in name: ") + name, "{" + Entry(name) + "}",
                      "control character: leave it out");
  }
  corpus->OverLimit("name of 257 bytes", "{" + Entry(std::string(257, 'n')) + "}",
                    "more than 256 bytes");
  corpus->OverLimit("name of 86 characters of 3 bytes", "{" + Entry(Repeat("中", 86)) + "}",
                    "more than 256 bytes");
}

void AddSyntax(Corpus* corpus) {
  const std::string good = "{" + Entry("a") + "}";
  corpus->Malformed("nested lists", std::string(100'000, '['), "first byte is not");
  corpus->Malformed("nested objects", Repeat("{\"a\":", 100'000), kOther);
  corpus->Malformed("nested in a shape",
                    "{" + Entry("a", std::string(100'000, '[') + std::string(100'000, ']')) + "}",
                    "nests deeper than");
  corpus->Malformed("nested in metadata", "{\"__metadata__\":" + Repeat("{\"a\":", 100'000), kOther,
                    "");
  corpus->Malformed("top level list", "[" + good + "]", "first byte is not");
  corpus->Malformed("top level string", "\"{}\"", "first byte is not");
  corpus->Malformed("nothing but spaces", std::string(16, ' '), "first byte is not");
  corpus->Malformed("trailing comma", "{" + Entry("a") + ",}", kNotJson);
  corpus->Malformed("leading comma", "{," + Entry("a") + "}", kNotJson);
  corpus->Malformed("trailing comma in a shape", "{" + Entry("a", "[1,]") + "}", kNotJson);
  corpus->Malformed("no comma", "{" + Entry("a") + Entry("b") + "}", kNotJson);
  corpus->Malformed("no colon", R"({"a" {}})", kNotJson);
  corpus->Malformed("single quotes", "{'a':{}}", kNotJson);
  corpus->Malformed("bare key", "{a:{}}", kNotJson);
  corpus->Malformed("comment", "{/* */" + Entry("a") + "}", kNotJson);
  corpus->Malformed("vertical tab as white space", "{\v" + Entry("a") + "}", kNotJson);
  corpus->Malformed("no-break space as white space", "{\xc2\xa0" + Entry("a") + "}", kNotJson);
  corpus->Malformed("wrong bracket", "{" + Entry("a", "[1}") + "}", kNotJson);
  for (std::size_t size = 2; size < good.size(); ++size) {
    corpus->Malformed("text ends after " + std::to_string(size), good.substr(0, size),
                      "the safetensors header");
  }
}

TEST(SafetensorsAttackTest, EveryAttackIsRefusedForItsOwnReason) {
  Corpus corpus;
  AddLengths(&corpus);
  AddLayouts(&corpus);
  AddKeys(&corpus);
  AddNumbers(&corpus);
  AddText(&corpus);
  AddSyntax(&corpus);
  EXPECT_GE(corpus.attacks.size(), 285u);
  for (const Attack& attack : corpus.attacks) {
    const auto file = ParseSafetensors(AsBytes(attack.file));
    ASSERT_FALSE(file.ok()) << attack.what;
    EXPECT_EQ(file.status().code(), attack.code) << attack.what << file.status().ToString();
    EXPECT_THAT(file.status().message(), HasSubstr(attack.reason)) << attack.what;
    // Whoever prints the message must not pass on control characters from a file.
    for (const char c : file.status().message()) {
      ASSERT_GE(static_cast<unsigned char>(c), 0x20) << attack.what;
    }
  }
}

__extension__ using Wide = unsigned __int128;

/// The usual suspects around a size of `max`.
class LengthsTable {
 public:
  void Check(const std::string& what, const Bytes& bytes, bool legal) {
    ++combinations;
    const auto file = ParseSafetensors(AsBytes(bytes));
    if (file.ok() != legal || (file.ok() && !BrokenRule(AsBytes(bytes), *file).empty())) {
      ++wrong;
      std::fprintf(stderr, "%s: %s\n", what.c_str(),
                   file.ok() ? "accepted" : file.status().ToString().c_str());
    }
    accepted += legal ? 1 : 0;
  }

  void Run() {
    const std::string data(64, 'd');
    // (begin, end), with a shape that fits whatever they say, alone and behind another tensor.
    for (const std::uint64_t a : testing::HostileLengths(64)) {
      for (const std::uint64_t b : testing::HostileLengths(64)) {
        const std::string offsets = "[" + std::to_string(a) + "," + std::to_string(b) + "]";
        const std::string shape = "[" + std::to_string(b >= a ? b - a : 0) + "]";
        Check("begin, end " + offsets, FileOf("{" + Entry("a", shape, offsets, "U8") + "}", data),
              a == 0 && b == 64);
        Check("second begin, end " + offsets,
              FileOf("{" + Entry("0", "[1]", "[0,1]", "U8") + "," +
                         Entry("a", shape, offsets, "U8") + "}",
                     data),
              a == 1 && b == 64);
      }
    }
    // (rows, cols), where the data is as long as a product that wrapped around would say.
    for (const auto& [dtype, bits] :
         {std::pair<std::string, unsigned>{"U8", 8}, {"F32", 32}, {"F64", 64}}) {
      for (const std::uint64_t rows : testing::HostileLengths(8)) {
        for (const std::uint64_t cols : testing::HostileLengths(8)) {
          const std::uint64_t wrapped = rows * cols * bits / 8;
          const std::uint64_t size = wrapped <= 4096 ? wrapped : 64;
          const Wide product = static_cast<Wide>(rows) * cols;
          const Wide nonzero = static_cast<Wide>(rows ? rows : 1) * (cols ? cols : 1);
          const std::uint64_t most = std::numeric_limits<std::int64_t>::max();
          const bool legal = rows <= most && cols <= most && (nonzero >> 58) == 0 &&
                             product * bits == static_cast<Wide>(size) * 8;
          Check(dtype + " " + std::to_string(rows) + " x " + std::to_string(cols),
                FileOf("{" +
                           Entry("a", "[" + std::to_string(rows) + "," + std::to_string(cols) + "]",
                                 "[0," + std::to_string(size) + "]", dtype) +
                           "}",
                       std::string(size, 'd')),
                legal);
        }
      }
    }
    // (count, size).
    for (const auto& [dtype, bytes] : {std::pair<std::string, unsigned>{"F32", 4}, {"F64", 8}}) {
      for (const std::uint64_t count : testing::HostileLengths(64 / bytes)) {
        for (const std::uint64_t size : testing::HostileLengths(64)) {
          const std::string offsets = "[0," + std::to_string(size) + "]";
          Check(dtype + " count " + std::to_string(count) + " in " + offsets,
                FileOf("{" + Entry("a", "[" + std::to_string(count) + "]", offsets, dtype) + "}",
                       data),
                count == 64 / bytes && size == 64);
        }
      }
    }
    // (N, size of the file).
    const std::string header = "{" + Entry("a", "[64]", "[0,64]", "U8") + "}";
    const Bytes whole = FileOf(header, data);
    for (const std::uint64_t n : testing::HostileLengths(header.size())) {
      for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7},
                                       std::uint64_t{8}, std::uint64_t{9}, 8 + header.size() - 1,
                                       8 + header.size(), whole.size() - 1, whole.size()}) {
        Bytes file = FileOf(n, header, data);
        file.resize(size);
        Check("N " + std::to_string(n) + " in " + std::to_string(size), file,
              n == header.size() && size == whole.size());
      }
    }
  }

  int combinations = 0;
  int accepted = 0;
  int wrong = 0;
};

TEST(SafetensorsAttackTest, HostileLengthsAreRefusedAndAskForNoMemory) {
  const auto run = [] {
    LengthsTable table;
    table.Run();
    return table.combinations == 648 && table.wrong == 0 && table.accepted > 10;
  };
  testing::ExpectTrueWithLittleMemory(run);
}

}  // namespace
}  // namespace passel

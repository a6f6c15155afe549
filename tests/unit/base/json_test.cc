// JSON as a tree and as objects with members: what is written is read back, nothing wrong is read.

#include "base/json.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_fields.h"

namespace passel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json Everything() {
  Json json = {{"null", nullptr},
               {"no", std::optional<int>()},
               {"truth", true},
               {"least", std::numeric_limits<std::int64_t>::min()},
               {"most", std::numeric_limits<std::uint64_t>::max()},
               {"whole", 2.0},
               {"tenth", 0.1},
               {"tiny", 5e-324},
               {"text", "\"\\\n\x01 \u00fc"},
               {"empty", Json::MakeObject()},
               {"none", Json::MakeList()},
               {"list", Json::MakeList(1, "a", Json::MakeList(-2.5))}};
  json["nested"]["numbers"] = std::vector<float>{0.1F, 1e30F};
  return json;
}

TEST(JsonTest, IsWrittenAsAnotherWriterWould) {
  const std::string text = Everything().Write();
  const auto other = nlohmann::ordered_json::parse(text);
  EXPECT_EQ(text, other.dump());
  EXPECT_EQ(Everything().Write(2), other.dump(2));
  EXPECT_EQ(Everything().Write(-1, Json::Charset::kAscii), other.dump(-1, ' ', true));
  EXPECT_EQ(ParseJson("it", text, 4)->Write(), text);
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Json::MakeList(infinite, -infinite, infinite - infinite).Write(), "[null,null,null]");
  EXPECT_EQ(Json("a\xff").Write(), "\"a\xef\xbf\xbd\"") << "replaced by U+FFFD";
  EXPECT_EQ(QuotedForJson("a\xff"), std::nullopt);
  EXPECT_EQ(QuotedForJson("a\""), "\"a\\\"\"");
}

TEST(JsonTest, NumbersAreReadAsWhatTheyFitIn) {
  const Json json = *ParseJson("it", "[255, 256, -1, 1.5, 1e3, 18446744073709551616, -0]", 1);
  const Json::List& list = *json.list();
  EXPECT_EQ(list[0].As<std::uint8_t>(), 255);
  EXPECT_EQ(list[1].As<std::uint8_t>(), std::nullopt);
  EXPECT_EQ(list[2].As<std::uint64_t>(), std::nullopt);
  EXPECT_EQ(list[2].As<int>(), -1);
  EXPECT_EQ(list[2].As<double>(), -1.0);
  EXPECT_EQ(list[3].As<int>(), std::nullopt);
  EXPECT_EQ(list[4].As<int>(), std::nullopt) << "with an exponent it is no integer";
  EXPECT_EQ(list[5].As<std::uint64_t>(), std::nullopt);
  EXPECT_EQ(list[6].As<std::uint64_t>(), std::nullopt) << "it has a sign";
  EXPECT_EQ(list[6].As<int>(), 0);
  EXPECT_EQ(list[6].As<double>(), 0.0);
  EXPECT_EQ(list[0].As<bool>(), std::nullopt);
  EXPECT_EQ(list[0].As<std::string>(), std::nullopt);
}

struct BadText {
  const char* name;
  std::string text;
  const char* words;
};

class BadJsonTest : public ::testing::TestWithParam<BadText> {};

TEST_P(BadJsonTest, IsRefusedInWords) {
  const Result<Json> json = ParseJson("the file", GetParam().text, 2);
  ASSERT_FALSE(json.ok());
  EXPECT_EQ(json.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(json.status().message(), HasSubstr("the file"));
  EXPECT_THAT(json.status().message(), HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(
    Texts, BadJsonTest,
    ::testing::Values(BadText{"Empty", "", "is not JSON: at byte"},
                      BadText{"CutOff", R"({"a":1)", "is not JSON: at byte 7"},
                      BadText{"TextBehind", "{}x", "is not JSON: at byte 3"},
                      BadText{"AnotherBehind", "{} {}", "is not JSON: at byte"},
                      BadText{"NulBehind", std::string("{}\0x", 4), "NUL byte, at byte 2"},
                      BadText{"KeyTwice", R"({"a":1,"b":{},"a":1})", "key \"a\" twice"},
                      BadText{"KeyTwiceEscaped", R"({"a":1,"\u0061":1})", "key \"a\" twice"},
                      BadText{"KeyTwiceBelow", R"([{"c":{"a":1,"a":1}}])", "key \"a\" twice"},
                      BadText{"Comment", "{/* */}", "is not JSON"},
                      BadText{"Infinite", "[1e999]", "is not JSON"},
                      BadText{"NotUtf8", "[\"\xff\"]", "is not JSON"},
                      BadText{"Deep", std::string(100'000, '['),
                              "deeper than 16 levels: it takes 2"}),
    [](const auto& test) { return test.param.name; });

TEST(BadJsonTest, TheSameKeyInTwoObjectsIsFine) {
  EXPECT_TRUE(ParseJson("it", R"({"a":{"a":[{"a":1},{"a":2}]}})", 4).ok());
  EXPECT_TRUE(ParseJson("it", std::string(16, '[') + std::string(16, ']'), 4).ok());
}

// --- Members

struct Part {
  std::int8_t small = 0;
  std::vector<std::vector<int>> lists;
  std::optional<double> number;
  friend bool operator==(const Part&, const Part&) = default;
};
void JsonMembers(auto& members, JsonPart<Part> auto& part) {
  members("small", part.small);
  members("lists", part.lists);
  members.IfAny("number", part.number);
}

struct Whole {
  std::vector<Part> parts;
  std::string text;
  int limited = 0;
  bool truth = false;
  friend bool operator==(const Whole&, const Whole&) = default;
};
void JsonMembers(auto& members, JsonPart<Whole> auto& whole) {
  members("parts", whole.parts, 2);
  members("text", whole.text, 5);
  members.IfAny("limited", whole.limited, 10);
  members.OrDefault("truth", whole.truth);
}

Result<Whole> ReadWhole(const std::string& text) {
  PASSEL_ASSIGN_OR_RETURN(const Json json, ParseJson("it", text, 4));
  Whole whole;
  PASSEL_RETURN_IF_ERROR(ReadJson("it", json, &whole));
  return whole;
}

TEST(JsonFieldsTest, WhatIsWrittenIsReadBack) {
  const Whole whole = {{{-128, {{1, 2}, {}}, {}}, {0, {}, 1.0}}, "text", 0, true};
  const std::string text = JsonOf(whole).Write();
  EXPECT_EQ(text, R"({"parts":[{"small":-128,"lists":[[1,2],[]]},)"
                  R"({"small":0,"lists":[],"number":1.0}],"text":"text","truth":true})");
  EXPECT_EQ(*ReadWhole(text), whole);
  EXPECT_THAT(JsonOf(whole).Leaves(),
              ::testing::Contains(::testing::Pair("/parts/0/lists/0/1", "2")));
}

TEST(JsonFieldsTest, WhatIsNotThereOrNullIsAsBefore) {
  const Result<Whole> whole = ReadWhole(R"({"truth":null,"text":"","parts":[]})");
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(*whole, Whole());
}

TEST(JsonFieldsTest, WhatIsWrongIsNamedByItsPlace) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"[]", "it: an object { } is expected here"},
      {"{}", "it: \"parts\" is missing: add it"},
      {R"({"parts":[],"text":null})", "it: \"text\" is missing: add it"},
      {R"({"parts":[],"txt":""})", "it: the key \"txt\" is not known: did you mean \"text\"?"},
      {R"({"parts":[],"text":"","other":1})", "it: the key \"other\" is not known: remove it"},
      {R"({"parts":[],"text":1})", "it: \"text\" must be a text"},
      {R"({"parts":[],"text":"123456"})",
       "it: \"text\" has 6 bytes: it takes up to 5 of printable ASCII"},
      {R"({"parts":[],"text":"\n"})",
       "it: \"text\" has 1 bytes: it takes up to 5 of printable ASCII"},
      {R"({"parts":[],"text":"","limited":11})",
       "it: \"limited\" must be a whole number from 0 to 10, not 11"},
      {R"({"parts":[],"text":"","limited":-1})",
       "it: \"limited\" must be a whole number from 0 to 10, not -1"},
      {R"({"parts":[],"text":"","truth":1})", "it: \"truth\" must be true or false"},
      {R"({"parts":{},"text":""})", "it: \"parts\" must be a list"},
      {R"({"parts":[1,2,3],"text":""})", "it: \"parts\" has 3 elements: it takes at most 2"},
      {R"({"parts":[1],"text":""})", "it: parts[0]: an object { } is expected here"},
      {R"({"parts":[{"small":128,"lists":[]}],"text":""})",
       "it: parts[0]: \"small\" must be a whole number from -128 to 127, not 128"},
      {R"({"parts":[{"small":1,"lists":[[],["a"]]}],"text":""})",
       "it: parts[0]: \"lists[1][0]\" must be a whole number from -2147483648 to 2147483647, not "
       "\"a\""},
      {R"({"parts":[{"small":1,"lists":[],"number":"1"}],"text":""})",
       "it: parts[0]: \"number\" must be a number"},
  };
  for (const auto& [text, message] : cases) {
    const Status status = ReadWhole(text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_EQ(status.message(), message) << text;
  }
}

TEST(JsonFieldsTest, AReaderMayLeaveOthersToOthers) {
  const Json json = *ParseJson("it", R"({"a":1,"b":2})", 1);
  int a = 0;
  JsonReader strict("it", json);
  strict("a", a);
  EXPECT_THAT(strict.Finish().message(), HasSubstr("\"b\""));
  JsonReader lenient("it", json);
  lenient.MayHaveOthers();
  lenient("a", a);
  EXPECT_TRUE(lenient.Finish().ok());
  EXPECT_EQ(a, 1);
}

}  // namespace
}  // namespace passel

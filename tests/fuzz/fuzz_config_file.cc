// fuzz_config_file.cc - libFuzzer target: no file may crash the reader or the resolution; what is
// accepted has the types of its flags, and every error names a place in the file.
//
// From the repository root:
//   clang++-14 -std=c++20 -g -O1 -DFMT_HEADER_ONLY -fsanitize=fuzzer,address,undefined \
//     -fno-sanitize-recover=all -I. -Isrc tests/fuzz/fuzz_config_file.cc src/cluster/*.cc \
//     src/base/{status,check,file,clock}.cc -lyaml -o /tmp/fuzz_config_file
//   mkdir -p /tmp/fuzz_config_file_corpus
//   /tmp/fuzz_config_file -max_len=4096 -max_total_time=180 /tmp/fuzz_config_file_corpus \
//     tests/fuzz/corpus/config_file

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cluster/config_file.h"
#include "cluster/resolve.h"

namespace {

using namespace passel;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "fuzz_config_file: %s\n", what.c_str());
  std::abort();
}

void CheckMessage(const Status& status, const char* prefix) {
  if (status.code() != Code::kInvalidArgument) Fail("code: " + status.ToString());
  const std::string& text = status.message();
  if (text.size() > 2000 || !text.starts_with(prefix)) Fail("message: " + text);
  for (const char c : text) {
    if (c < 0x20 || c > 0x7E) Fail("message that cannot be printed");
  }
}

const std::vector<Flag>& Flags() {
  static const std::vector<Flag> flags{{"i", FlagType::kInteger}, {"n", FlagType::kNumber},
                                       {"b", FlagType::kBool},    {"l", FlagType::kList},
                                       {"text", FlagType::kText}, {"num_gpus", FlagType::kInteger}};
  return flags;
}

bool HasType(const std::string& text, FlagType type) {
  char* end = nullptr;
  switch (type) {
    case FlagType::kInteger:
      return !text.empty() && text.find_first_not_of("-0123456789") == std::string::npos;
    case FlagType::kNumber:
      return std::isfinite(std::strtod(text.c_str(), &end)) && end == text.c_str() + text.size();
    case FlagType::kBool:
      return text == "true" || text == "false";
    case FlagType::kList:
    case FlagType::kText:
      return std::none_of(text.begin(), text.end(), [](char c) { return c >= 0 && c < 0x20; });
  }
  return false;
}

void CheckAccepted(const ConfigFile& file, int lines) {
  for (const auto& [name, value] : file.values) {
    if (value.line < 1 || value.line > lines || value.column < 1) Fail("a place outside the file");
    for (const Flag& flag : Flags()) {
      if (flag.name == name && !HasType(value.text, flag.type)) Fail("wrong type of " + name);
    }
    if ((name == "ps_hosts" || name == "worker_hosts") && !value.text.empty() &&
        !ParseHostList(value.text).ok()) {
      Fail("wrong hosts");
    }
  }
  for (const auto& [job, value] : file.single_tasks) {
    if (!ParseHostPort(value.text).ok()) Fail("wrong address of " + job);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<FileFlag> known;
  for (const Flag& flag : Flags()) known.push_back({flag.name, flag.type});
  const auto file = ParseConfigFile("f", text, known);
  if (file.ok()) {
    // A line ends with a line feed, a carriage return, or one of the line ends of Unicode.
    CheckAccepted(*file, 1 + static_cast<int>(size));
  } else {
    CheckMessage(file.status(), "f:");
  }
  ResolveInputs inputs;
  inputs.flags = Flags();
  inputs.config_path = "f";
  inputs.config_text = text;
  const auto config = Resolve(inputs);
  if (!file.ok() && config.ok()) Fail("resolved with a wrong file");
  if (!config.ok()) {
    CheckMessage(config.status(), "");
  } else if (config->Describe().empty()) {
    Fail("no description");
  }
  return 0;
}

// fuzz_safetensors.cc - libFuzzer target: no bytes may crash the reader, and whatever it accepts
// keeps all rules, is read alike by a JSON library, and survives being written again.
//
// From the repository root:
//   clang++-14 -std=c++20 -g -O1 -DFMT_HEADER_ONLY -fsanitize=fuzzer,address,undefined \
//     -fno-sanitize-recover=all -I. -Isrc -Itests tests/fuzz/fuzz_safetensors.cc \
//     src/io/safetensors.cc src/io/safetensors_header.cc src/base/status.cc src/base/check.cc \
//     src/base/file.cc src/base/json.cc src/base/text.cc -o /tmp/fuzz_safetensors
//   mkdir -p /tmp/fuzz_safetensors_corpus
//   /tmp/fuzz_safetensors -max_len=4096 -dict=tests/fuzz/safetensors.dict -max_total_time=120 \
//     /tmp/fuzz_safetensors_corpus

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "unit/io/safetensors_helpers.h"

namespace {

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "fuzz_safetensors: %s\n", what.c_str());
  std::abort();
}

void CheckOne(const std::vector<std::uint8_t>& input) {
  const auto bytes = std::as_bytes(std::span(input));
  const auto file = passel::ParseSafetensors(bytes);
  if (!file.ok()) {
    for (const char c : file.status().message()) {
      if (static_cast<unsigned char>(c) < 0x20) Fail("control character in a message");
    }
    return;
  }
  const std::string broken = passel::test::BrokenRule(bytes, *file);
  if (!broken.empty()) Fail("accepted, but: " + broken);

  const auto written = passel::SerializeSafetensors(file->tensors, file->metadata);
  if (!written.ok()) {
    // Only escapes can make a header longer than the one that was read.
    if (input.size() > (1u << 19)) return;
    Fail("cannot be written: " + written.status().ToString());
  }
  const auto again = passel::ParseSafetensors(std::as_bytes(std::span(*written)));
  if (!again.ok()) Fail("written, but: " + again.status().ToString());
  if (again->metadata != file->metadata || again->tensors.size() != file->tensors.size()) {
    Fail("changed by writing");
  }
  for (const passel::TensorView& tensor : file->tensors) {
    const passel::TensorView* const found = again->Find(tensor.name);
    if (!found || found->dtype != tensor.dtype || found->shape != tensor.shape ||
        !std::equal(found->data.begin(), found->data.end(), tensor.data.begin(),
                    tensor.data.end())) {
      Fail("tensor changed by writing");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // As it is; and as a header of the right length, so that the parser is reached at once, with the
  // first byte saying how much of the end is tensor data.
  CheckOne(std::vector<std::uint8_t>(data, data + size));
  if (size < 3) return 0;
  const std::size_t tail = data[0] % (size - 1);
  const std::uint64_t n = size - 1 - tail;
  std::vector<std::uint8_t> framed(8 + size - 1);
  std::memcpy(framed.data(), &n, 8);
  std::memcpy(framed.data() + 8, data + 1, size - 1);
  CheckOne(framed);
  return 0;
}

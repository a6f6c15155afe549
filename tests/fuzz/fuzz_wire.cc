// fuzz_wire.cc - libFuzzer target: no bytes from the other end of a connection may crash the reader
// of messages, or that of the frames before them; what is accepted is written as it was read.
//
// From the repository root:
//   clang++-14 -std=c++20 -g -O1 -DFMT_HEADER_ONLY -fsanitize=fuzzer,address,undefined \
//     -fno-sanitize-recover=all -I. -Isrc tests/fuzz/fuzz_wire.cc fabric/wire.cc \
//     fabric/libfabric/frame.cc src/store/mode.cc src/base/{status,check,clock}.cc -o
//     /tmp/fuzz_wire
//   mkdir -p /tmp/fuzz_wire_corpus
//   /tmp/fuzz_wire -max_len=16384 -max_total_time=180 /tmp/fuzz_wire_corpus tests/fuzz/corpus/wire

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "fabric/libfabric/frame.h"
#include "fabric/pipe.h"
#include "fabric/wire.h"

namespace {

using namespace passel;
using namespace passel::fabric;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "fuzz_wire: %s\n", what.c_str());
  std::abort();
}

template <typename Message, typename Decode>
void Check(const Result<Message>& got, std::size_t size, Decode&& decode) {
  if (!got.ok()) {
    if (got.status().code() != Code::kInvalidArgument) Fail(got.status().ToString());
    if (got.status().message().empty()) Fail("refused without a sentence");
    return;
  }
  const std::vector<std::uint8_t> written = Encode(*got);
  // The message of a status that is OK is left out.
  if (written.size() > size) Fail("longer than it was");
  const Result<Message> again = decode(written);
  if (!again.ok()) Fail("written, but: " + again.status().ToString());
  if (Encode(*again) != written) Fail("changed by writing");
}

void CheckFrame(std::span<const std::uint8_t> bytes) {
  constexpr std::uint64_t kMostFloats = std::uint64_t{1} << 40;
  const Result<PipeFrame> frame = DecodePipeFrame(bytes, kMostFloats);
  if (!frame.ok()) {
    if (frame.status().code() != Code::kInvalidArgument) Fail(frame.status().ToString());
    return;
  }
  std::array<std::uint8_t, kFramePrefixBytes> written;
  EncodePipeFrame(*frame, written.data());
  if (!std::equal(written.begin(), written.end(), bytes.begin())) Fail("a frame has changed");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> bytes(data, std::min(size, kMaxHeaderBytes));
  const auto request = DecodeRequest(bytes);
  const auto answer = DecodeAnswer(bytes);
  if (request.ok() && answer.ok()) Fail("a message of both directions");
  CheckFrame(std::span(data, std::min(size, kMaxPipeFrameBytes)));
  Check(request, bytes.size(), DecodeRequest);
  Check(answer, bytes.size(), DecodeAnswer);
  return 0;
}

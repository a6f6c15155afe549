// fuzz_idx.cc - libFuzzer target: no bytes may crash the IDX reader or make it write past the
// payload that it announced, and plain files that it accepts are read as they are.
//
// The input is tried as an image file and as a label file; as it is (plain or gzip); and behind a
// gzip header, with the checksum put right, so that the inflated content is reached at once.

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "data/idx.h"

namespace {

using passel::IdxKind;
using passel::IdxReader;

// Inputs are small, so a larger payload can only be a lie; gzip may tell one up to 1032 times.
constexpr std::uint64_t kMostBytes = 16 << 20;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "fuzz_idx: %s\n", what.c_str());
  std::abort();
}

void CheckMessage(const passel::Status& status) {
  if (status.message().empty()) Fail("an error without a message");
}

void CheckOne(const std::vector<std::uint8_t>& input, IdxKind kind) {
  const auto bytes = std::as_bytes(std::span(input));
  auto reader = IdxReader::Open(std::make_unique<passel::SpanSource>(bytes), kind, "input");
  if (!reader.ok()) return CheckMessage(reader.status());
  const std::uint64_t size = reader->shape().PayloadBytes();
  if (size == 0 || size > passel::kMaxIdxPayloadBytes) Fail("a payload outside the limits");
  const bool gzip = input[0] == 0x1f;
  const std::size_t header = kind == IdxKind::kImages ? 16 : 8;
  if (!gzip && header + size != input.size()) Fail("a plain file of another size");
  if (gzip && size > 1032 * (input.size() + 1)) Fail("more than deflate can hold");
  if (size > kMostBytes) return;
  const auto payload = std::make_unique<std::byte[]>(size);  // exactly: watched on both sides
  const passel::Status status = reader->ReadPayload(std::span(payload.get(), size));
  if (!status.ok()) return CheckMessage(status);
  if (!gzip && std::memcmp(payload.get(), input.data() + header, size) != 0) Fail("other bytes");
}

std::vector<std::uint8_t> Gzip(const std::uint8_t* data, std::size_t size) {
  z_stream stream{};
  if (deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) std::abort();
  std::vector<std::uint8_t> out(deflateBound(&stream, size) + 32);
  stream.next_in = const_cast<Bytef*>(data);
  stream.avail_in = static_cast<uInt>(size);
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) std::abort();
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::uint8_t> plain(data, data + size);
  const std::vector<std::uint8_t> packed = Gzip(data, size);
  for (const IdxKind kind : {IdxKind::kImages, IdxKind::kLabels}) {
    CheckOne(plain, kind);
    CheckOne(packed, kind);
  }
  return 0;
}

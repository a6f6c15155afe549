// fuzz_frame.cc - libFuzzer target: no bytes may crash the reader of sealed frames, make it keep
// more than it has room for, or open; what was sealed opens wherever it is split.
//
// The first byte chooses: odd, the rest are bytes of a stranger; even, they are sealed and then
// handed over in parts.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "fabric/control/frames.h"

namespace {

using namespace passel;
using namespace passel::fabric;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "fuzz_frame: %s\n", what);
  std::abort();
}

constexpr KeyedHash kKey = {1, 2, 3};

// False: it is over.
bool Feed(FrameOpener& opener, std::span<const std::uint8_t>& bytes, std::size_t part) {
  const std::span<std::uint8_t> room = opener.Room();
  if (room.empty()) Fail("no room");
  part = std::min({part, room.size(), bytes.size()});
  std::copy_n(bytes.begin(), part, room.begin());
  opener.Filled(part);
  bytes = bytes.subspan(part);
  return part > 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const bool stranger = data[0] % 2 == 1;
  const std::size_t part = 1 + data[1] * std::size_t{7};
  std::span<const std::uint8_t> bytes(data + 2, size - 2);
  std::vector<std::uint8_t> sealed;
  std::size_t frames = 0;
  if (!stranger) {
    FrameSealer sealer(kKey);
    const auto kind = static_cast<FrameKind>(1 + data[0] / 2 % 5);
    for (std::size_t at = 0; at <= bytes.size(); at += 1000, ++frames) {
      sealer.Seal(kind, bytes.subspan(at, std::min<std::size_t>(1000, bytes.size() - at)), {},
                  &sealed);
    }
    bytes = sealed;
  }
  FrameOpener opener(kKey);
  std::size_t opened = 0;
  for (;;) {
    const auto frame = opener.Next();
    if (!frame.ok()) {
      if (!stranger) Fail("sealed, and does not open");
      if (frame.status().code() != Code::kDataLoss) Fail("another code");
      return 0;
    }
    if (*frame) {
      ++opened;
      if (stranger) Fail("opened without the key");
    } else if (!Feed(opener, bytes, part)) {
      break;
    }
  }
  if (opened != frames) Fail("frames are missing");
  return 0;
}

// fuzz_npz.cc - libFuzzer target: no bytes may crash the npz reader or make it write past the
// arrays that it announced.
//
// The input is tried as an archive; as the dictionary of an npy header; and cut into the contents
// of the four arrays of an archive that is put together here, checksums and all, so that what is
// behind the checksums is reached at once. Its first byte says how it is cut and packed.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/npy.h"
#include "data/npz.h"
#include "tests/unit/data/zip_files.h"

namespace {

using passel::NpzReader;
using passel::test::ZipFile;

constexpr std::uint64_t kMostBytes = 20'000 * 784;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "fuzz_npz: %s\n", what.c_str());
  std::abort();
}

void CheckMessage(const passel::Status& status) {
  if (status.message().empty()) Fail("an error without a message");
}

void CheckArchive(const std::vector<std::uint8_t>& input) {
  auto reader = NpzReader::OpenBytes(std::as_bytes(std::span(input)), "input");
  if (!reader.ok()) return CheckMessage(reader.status());
  for (std::size_t part = 0; part < 4; ++part) {
    const std::uint64_t count = part < 2 ? reader->train_count() : reader->test_count();
    if (count == 0) Fail("an array without examples");
    const std::uint64_t size = count * (part % 2 == 0 ? reader->pixels() : 1);
    if (size > 1032 * (input.size() + 1)) Fail("more than deflate can hold");
    if (size > kMostBytes) continue;
    const auto out = std::make_unique<std::byte[]>(size);  // exactly: watched on both sides
    const passel::Status status = reader->ReadArray(part, std::span(out.get(), size));
    if (!status.ok()) CheckMessage(status);
  }
}

void CheckDictionary(std::string_view text) {
  const auto header = passel::ParseNpyDictionary(text, "input");
  if (!header.ok()) return CheckMessage(header.status());
  if (header->width == 0 || header->width > 999 || header->shape.size() > 32) {
    Fail("a header outside the limits");
  }
  // What was understood says the same when it is written as NumPy writes it.
  std::string again = "{'descr': '" + header->descr + "', 'fortran_order': ";
  again += header->fortran_order ? "True" : "False";
  again += ", 'shape': " + passel::NpyShapeText(header->shape) + ", }";
  const auto second = passel::ParseNpyDictionary(again, "input");
  if (!second.ok()) Fail("cannot be read again: " + again);
  if (second->shape != header->shape || second->fortran_order != header->fortran_order ||
      second->kind != header->kind || second->width != header->width ||
      second->byte_order != header->byte_order) {
    Fail("changed by writing");
  }
}

// An array with a true header for `count` examples unless `lies`: then `content` is the whole file.
ZipFile Array(std::size_t part, std::uint32_t count, bool lies, bool deflate,
              std::vector<std::uint8_t> content) {
  const std::string shape = std::to_string(count);
  if (!lies && part % 2 == 0) {
    content.resize(std::size_t{count} * 784);
    content = passel::test::Npy("|u1", "(" + shape + ", 784)", content);
  } else if (!lies) {
    content.resize(std::size_t{count} * 2);
    content = passel::test::Npy(count % 2 == 0 ? "<i2" : ">i2", "(" + shape + ",)", content);
  }
  return {passel::kNpzArrayNames[part], std::move(content), deflate};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  CheckArchive({data, data + size});
  CheckDictionary({reinterpret_cast<const char*>(data), size});
  if (size < 2) return 0;
  // Bits 0-1: which array is the input itself, if bit 2 is set; bits 3-4: images; bit 5: deflate.
  const unsigned how = data[0];
  const std::uint32_t count = 1 + (how >> 3 & 3);
  std::vector<ZipFile> files;
  for (std::size_t part = 0; part < 4; ++part) {
    const bool lies = (how & 4) != 0 && part == (how & 3);
    files.push_back(Array(part, count, lies, (how & 32) != 0, {data + 1, data + size}));
  }
  CheckArchive(passel::test::Zip(files));
  return 0;
}

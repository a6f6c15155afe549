// zip_files.h - zip archives and npy arrays for the tests and fuzz targets of src/data, with every
// field that a hostile archive may lie in.

#pragma once

#include <zlib.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace passel::test {

/// One file of an archive. What is not set is as it should be.
struct ZipFile {
  std::string name;
  std::vector<std::uint8_t> content;
  bool deflate = false;
  std::optional<std::uint16_t> method = {};           ///< claimed
  std::uint16_t flags = 0;                            ///< bit 0: encrypted
  std::optional<std::uint32_t> crc = {};              ///< claimed
  std::optional<std::uint32_t> size = {};             ///< claimed, after decompression
  std::optional<std::uint32_t> compressed_size = {};  ///< claimed
};

inline void AppendLittle(std::vector<std::uint8_t>* out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

/// Deflate without any frame, as zip wants it.
inline std::vector<std::uint8_t> RawDeflate(const std::vector<std::uint8_t>& bytes, int level = 6) {
  z_stream stream{};
  deflateInit2(&stream, level, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
  std::vector<std::uint8_t> out(deflateBound(&stream, bytes.size()));
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::vector<std::uint8_t> Zip(const std::vector<ZipFile>& files) {
  std::vector<std::uint8_t> out, directory;
  for (const ZipFile& file : files) {
    const std::vector<std::uint8_t> data =
        file.deflate ? RawDeflate(file.content, 1) : file.content;
    const std::uint32_t offset = static_cast<std::uint32_t>(out.size());
    const auto crc = static_cast<std::uint32_t>(
        crc32(0, file.content.data(), static_cast<uInt>(file.content.size())));
    // The fields that the local header and the directory share.
    std::vector<std::uint8_t> common;
    AppendLittle(&common, 20, 2);  // version needed
    AppendLittle(&common, file.flags, 2);
    AppendLittle(&common, file.method.value_or(file.deflate ? 8 : 0), 2);
    AppendLittle(&common, 0, 2);       // time
    AppendLittle(&common, 0x0021, 2);  // 1980-01-01
    AppendLittle(&common, file.crc.value_or(crc), 4);
    AppendLittle(&common, file.compressed_size.value_or(static_cast<std::uint32_t>(data.size())),
                 4);
    AppendLittle(&common, file.size.value_or(static_cast<std::uint32_t>(file.content.size())), 4);
    AppendLittle(&common, file.name.size(), 2);
    AppendLittle(&common, 0, 2);  // extra field

    AppendLittle(&out, 0x04034b50, 4);
    out.insert(out.end(), common.begin(), common.end());
    out.insert(out.end(), file.name.begin(), file.name.end());
    out.insert(out.end(), data.begin(), data.end());

    AppendLittle(&directory, 0x02014b50, 4);
    AppendLittle(&directory, 20, 2);  // version made by
    directory.insert(directory.end(), common.begin(), common.end());
    directory.insert(directory.end(), 10, 0);  // comment, disk, attributes
    AppendLittle(&directory, offset, 4);
    directory.insert(directory.end(), file.name.begin(), file.name.end());
  }
  const std::size_t start = out.size();
  out.insert(out.end(), directory.begin(), directory.end());
  AppendLittle(&out, 0x06054b50, 4);
  AppendLittle(&out, 0, 4);  // disks
  AppendLittle(&out, files.size(), 2);
  AppendLittle(&out, files.size(), 2);
  AppendLittle(&out, directory.size(), 4);
  AppendLittle(&out, start, 4);
  AppendLittle(&out, 0, 2);  // comment
  return out;
}

/// An npy file, its dictionary padded as NumPy pads it.
inline std::vector<std::uint8_t> NpyText(const std::string& dictionary,
                                         const std::vector<std::uint8_t>& elements, int major = 1) {
  const std::size_t fixed = major == 1 ? 10 : 12;
  std::string text = dictionary;
  while ((fixed + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::vector<std::uint8_t> out = {0x93, 'N', 'U', 'M', 'P', 'Y', static_cast<std::uint8_t>(major),
                                   0};
  AppendLittle(&out, text.size(), major == 1 ? 2 : 4);
  out.insert(out.end(), text.begin(), text.end());
  out.insert(out.end(), elements.begin(), elements.end());
  return out;
}

/// shape: "(5, 28, 28)".
inline std::vector<std::uint8_t> Npy(const std::string& descr, const std::string& shape,
                                     const std::vector<std::uint8_t>& elements, int major = 1) {
  return NpyText("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }",
                 elements, major);
}

}  // namespace passel::test

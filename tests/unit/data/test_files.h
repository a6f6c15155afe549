// test_files.h - IDX files, gzip and what fails, for the tests of src/data.

#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "support/temp_dir.h"

namespace passel::test {

using Bytes = std::vector<std::uint8_t>;

/// Matches a Status or a Result that failed with `code`, whose message holds all `texts`.
class Fails {
 public:
  using is_gtest_matcher = void;
  template <typename... Texts>
  explicit Fails(Code code, const Texts&... texts) : code_(code), texts_{std::string(texts)...} {}

  template <typename T>
  bool MatchAndExplain(const T& result, std::ostream* out) const {
    Status status;
    if constexpr (std::is_same_v<T, Status>) {
      status = result;
    } else {
      status = result.status();
    }
    if (out != nullptr) *out << "which is " << status.ToString();
    bool all = status.code() == code_;
    for (const std::string& text : texts_) {
      all = all && status.message().find(text) != std::string::npos;
    }
    return all;
  }
  void DescribeTo(std::ostream* out) const {
    *out << "fails with " << CodeName(code_);
    for (const std::string& text : texts_) *out << ", \"" << text << '"';
  }
  void DescribeNegationTo(std::ostream* out) const { *out << "does not fail so"; }

 private:
  Code code_;
  std::vector<std::string> texts_;
};

/// Sets an environment variable (nullptr: unsets it) until the end of the scope.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    const char* old = ::getenv(name);
    had_ = old != nullptr;
    if (had_) old_ = old;
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~ScopedEnv() { had_ ? ::setenv(name_, old_.c_str(), 1) : ::unsetenv(name_); }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  const char* name_;
  bool had_;
  std::string old_;
};

inline std::span<const std::byte> View(const Bytes& bytes) {
  return std::as_bytes(std::span(bytes));
}

inline void Append32(Bytes* bytes, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes->push_back(static_cast<std::uint8_t>(value >> shift));
  }
}

/// Header words, then the payload.
inline Bytes Idx(std::initializer_list<std::uint32_t> header, const Bytes& payload) {
  Bytes bytes;
  for (const std::uint32_t word : header) Append32(&bytes, word);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

/// Bytes that differ from their neighbours and from run to run of 251.
inline Bytes Ramp(std::size_t count, unsigned start = 0) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>((start + i) % 251);
  return bytes;
}

inline Bytes Gzip(const Bytes& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  Bytes out(deflateBound(&stream, bytes.size()) + 32);
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline void WriteAll(const std::string& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file.good()) << path;
}

inline Bytes ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes((std::istreambuf_iterator<char>(file)), {});
}

/// The first `size` bytes.
inline Bytes First(const Bytes& bytes, std::size_t size) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)};
}

/// Where a checkout keeps real MNIST, beside it; the test is skipped where it is not.
inline std::string MnistDir() { return std::string(PASSEL_SOURCE_DIR) + "/../shared/data/mnist"; }
inline bool HaveMnist() {
  return std::filesystem::exists(MnistDir() + "/train-images-idx3-ubyte.gz");
}

}  // namespace passel::test

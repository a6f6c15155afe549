// format_files.h - small data sets, written in every format.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "data/dataset.h"
#include "data/idx.h"
#include "unit/data/test_files.h"
#include "unit/data/zip_files.h"

namespace passel::test {

inline Bytes Text(const std::string& text) { return {text.begin(), text.end()}; }

/// Images with their labels.
struct Images {
  std::size_t rows = 28, cols = 28;
  Bytes pixels, labels;

  static Images Of(std::size_t rows, std::size_t cols, const Bytes& labels, unsigned start) {
    return {rows, cols, Ramp(labels.size() * rows * cols, start), labels};
  }
  static Images Of(const ImageSet& set) {
    return {28, 28, Bytes(set.images.begin(), set.images.end()),
            Bytes(set.labels.begin(), set.labels.end())};
  }
};

struct TwoSets {
  Images train, test;
};

/// A set of 3 and 2 images.
inline TwoSets Small(std::size_t rows = 28, std::size_t cols = 28) {
  return {Images::Of(rows, cols, {0, 9, 3}, 0), Images::Of(rows, cols, {1, 8}, 100)};
}

/// REQUIRES: images of 28 x 28 pixels.
inline TwoSets Copy(const Dataset& data) {
  return {Images::Of(data.train()), Images::Of(data.test())};
}

inline Bytes Csv(const Images& images, const std::string& end = "\n") {
  std::string text;
  text.reserve(images.pixels.size() * 4);
  const std::size_t pixels = images.rows * images.cols;
  for (std::size_t i = 0; i < images.labels.size(); ++i) {
    text += std::to_string(images.labels[i]);
    for (std::size_t p = 0; p < pixels; ++p) {
      (text += ',') += std::to_string(images.pixels[i * pixels + p]);
    }
    text += end;
  }
  return Text(text);
}

inline void WriteCsv(const std::string& dir, const TwoSets& set) {
  WriteAll(dir + "/mnist_train.csv", Csv(set.train));
  WriteAll(dir + "/mnist_test.csv", Csv(set.test, "\r\n"));
}

/// Training images packed if `deflate`, test images without their sides, and training labels of 8
/// bytes, as others have them.
inline Bytes Npz(const TwoSets& set, bool deflate = true) {
  Bytes wide;
  for (const std::uint8_t label : set.train.labels) AppendLittle(&wide, label, 8);
  const std::string train = std::to_string(set.train.labels.size()) + ",";
  const std::string test = std::to_string(set.test.labels.size()) + ",";
  const std::size_t rows = set.train.rows, cols = set.train.cols;
  const std::string sides = std::to_string(rows) + ", " + std::to_string(cols);
  const std::string pixels = std::to_string(rows * cols);
  return Zip({{"x_train.npy", Npy("|u1", "(" + train + sides + ")", set.train.pixels), deflate},
              {"y_train.npy", Npy("<i8", "(" + train + ")", wide)},
              {"x_test.npy", Npy("|u1", "(" + test + pixels + ")", set.test.pixels)},
              {"y_test.npy", Npy("|u1", "(" + test + ")", set.test.labels)}});
}

inline void WriteNpz(const std::string& dir, const TwoSets& set) {
  WriteAll(dir + "/mnist.npz", Npz(set));
}

inline void WriteIdx(const std::string& dir, const TwoSets& set) {
  const Images* const sets[] = {&set.train, &set.test};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto count = static_cast<std::uint32_t>(sets[i]->labels.size());
    const auto rows = static_cast<std::uint32_t>(sets[i]->rows);
    const auto cols = static_cast<std::uint32_t>(sets[i]->cols);
    WriteAll(dir + "/" + kIdxFileNames[2 * i], Idx({2051, count, rows, cols}, sets[i]->pixels));
    WriteAll(dir + "/" + kIdxFileNames[2 * i + 1], Idx({2049, count}, sets[i]->labels));
  }
}

/// How each format is written; in the order of DataFormats().
struct Writer {
  const char* format;
  void (*write)(const std::string& dir, const TwoSets& set);
  bool says_sides;  ///< of images that are no squares
};
inline constexpr Writer kWriters[] = {
    {"idx", WriteIdx, true}, {"npz", WriteNpz, true}, {"csv", WriteCsv, false}};

}  // namespace passel::test

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/bitmap_font.h"
#include "train/confusion_matrix.h"
#include "train/confusion_picture.h"

namespace passel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Rows: label; columns: predicted.
ConfusionMatrix Matrix(const std::vector<std::vector<int>>& counts) {
  ConfusionMatrix m(counts.size());
  for (std::size_t label = 0; label < counts.size(); ++label) {
    for (std::size_t c = 0; c < counts.size(); ++c) {
      for (int i = 0; i < counts[label][c]; ++i) m.Add(label, static_cast<std::uint16_t>(c));
    }
  }
  return m;
}

TEST(ConfusionMatrixTest, CountsAndShares) {
  ConfusionMatrix m = Matrix({{5, 1, 0}, {2, 6, 0}, {0, 0, 0}});
  EXPECT_EQ(m.total(), 14u);
  EXPECT_EQ(m.correct(), 11u);
  EXPECT_EQ(m.labelled(0), 6u);
  EXPECT_EQ(m.predicted(0), 7u);
  EXPECT_DOUBLE_EQ(*m.Recall(0), 5.0 / 6);
  EXPECT_DOUBLE_EQ(*m.Precision(0), 5.0 / 7);
  EXPECT_EQ(m.Recall(2), std::nullopt);
  EXPECT_EQ(m.Precision(2), std::nullopt);
  m.Add(1, kNoClass);
  EXPECT_EQ(m.undecided(), 1u);
  EXPECT_EQ(m.labelled(1), 9u) << "an undecided example has its label still";
  EXPECT_EQ(m.predicted(1), 7u);
  EXPECT_EQ(m.total(), 15u);
}

TEST(ConfusionMatrixTest, TableIsAligned) {
  EXPECT_EQ(FormatTable(Matrix({{12345, 1}, {0, 6}})),
            "           predicted\n"
            "    label       0      1   total  recall\n"
            "        0   12345      1   12346  0.9999\n"
            "        1       0      6       6  1.0000\n"
            "    total   12345      7   12352\n"
            "precision  1.0000 0.8571\n");
  ConfusionMatrix none = Matrix({{1, 0}, {0, 0}});
  none.Add(0, kNoClass);
  EXPECT_EQ(FormatTable(none),
            "           predicted\n"
            "    label       0      1   none   total  recall\n"
            "        0       1      0      1       2  0.5000\n"
            "        1       0      0      0       0       -\n"
            "    total       1      0      1       2\n"
            "precision  1.0000      -\n");
}

std::array<std::uint8_t, 3> Pixel(const RgbPicture& p, std::size_t x, std::size_t y) {
  const std::uint8_t* at = &p.pixels[(y * p.width + x) * 3];
  return {at[0], at[1], at[2]};
}

// Finds `text` in the ink of the picture, letter by letter, at twice the size of the font.
int CountText(const RgbPicture& p, const std::string& text) {
  const auto inked = [&](std::size_t x, std::size_t y, std::array<std::uint8_t, 3> ink) {
    return Pixel(p, x, y) == ink;
  };
  int found = 0;
  const std::size_t width = text.size() * 12 - 2;
  for (std::size_t y = 0; y + 14 <= p.height; ++y) {
    for (std::size_t x = 0; x + width <= p.width; ++x) {
      bool all = true;
      std::optional<std::array<std::uint8_t, 3>> ink;
      for (std::size_t i = 0; all && i < text.size(); ++i) {
        for (std::size_t row = 0; all && row < 14; ++row) {
          for (std::size_t column = 0; all && column < 10; ++column) {
            const bool set = (Glyph(text[i])[row / 2] >> (4 - column / 2) & 1) != 0;
            const std::size_t px = x + i * 12 + column;
            if (set && !ink) ink = Pixel(p, px, y + row);
            if (set) all = inked(px, y + row, *ink);
            if (!set && ink) all = !inked(px, y + row, *ink);
          }
        }
      }
      found += all && ink;
    }
  }
  return found;
}

TEST(ConfusionPictureTest, CountsLabelsAndSharesCanBeRead) {
  const RgbPicture p = DrawConfusionMatrix(Matrix({{907, 13}, {48, 265}}), "job 7: 0.95");
  ASSERT_EQ(p.pixels.size(), p.width * p.height * 3);
  for (const char* text : {"907", "13", "48", "265", "LABEL", "PREDICTED", "RECALL", "PRECISION",
                           "JOB 7: 0.95", "98.6%", "84.7%", "95.0%", "95.3%"}) {
    EXPECT_EQ(CountText(p, text), 1) << text;
  }
  EXPECT_EQ(CountText(p, "999"), 0) << "the search finds nothing that is not there";
}

TEST(ConfusionPictureTest, MoreExamplesMakeADarkerCell) {
  const RgbPicture p = DrawConfusionMatrix(Matrix({{90, 10, 0}, {40, 60, 0}, {0, 0, 100}}), "");
  // Corners of cells, above the numbers, found by the labels' column.
  const std::size_t cell_width = (p.width - 126 - 90) / 3, left = 126;
  const auto shade = [&](std::size_t label, std::size_t column) {
    const auto pixel = Pixel(p, left + column * cell_width + 3, 86 + label * 36 + 3);
    return pixel[0] + pixel[1] + pixel[2];
  };
  EXPECT_LT(shade(0, 0), shade(1, 1));
  EXPECT_LT(shade(1, 0), shade(0, 1));
  EXPECT_EQ(shade(0, 2), 3 * 255);
  EXPECT_LT(shade(2, 2), shade(0, 0));
}

TEST(ConfusionPictureTest, AnyNumberOfClassesAndAnyTitleCanBeDrawn) {
  for (const std::size_t classes : {1u, 2u, 32u, 33u, 256u}) {
    ConfusionMatrix m(classes);
    for (std::size_t c = 0; c < classes; ++c) m.Add(c, static_cast<std::uint16_t>(c));
    m.Add(0, kNoClass);
    const RgbPicture p = DrawConfusionMatrix(m, std::string(50, '\xff') + "A_b");
    EXPECT_EQ(p.pixels.size(), p.width * p.height * 3) << classes;
    EXPECT_LT(p.width, 3000u);
    EXPECT_LT(p.height, 3000u);
  }
}

TEST(BitmapFontTest, NoTwoCharactersLookTheSame) {
  const std::string characters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ.,:%-/=() ";
  for (const char a : characters) {
    for (const char b : characters) EXPECT_EQ(Glyph(a) == Glyph(b), a == b) << a << " " << b;
  }
  EXPECT_EQ(Glyph('q'), Glyph('Q'));
  EXPECT_EQ(Glyph('\xff'), Glyph(' '));
}

}  // namespace
}  // namespace passel

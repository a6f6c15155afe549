#include <gtest/gtest.h>

#include "train/confusion_matrix.h"

namespace passel {
namespace {

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

}  // namespace
}  // namespace passel

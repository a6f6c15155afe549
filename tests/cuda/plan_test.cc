#include "cuda/plan.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/random.h"

namespace passel::cuda {
namespace {

using Edges = std::vector<int>;

class PlanTest : public testing::Test {
 protected:
  Bytes At(std::size_t begin, std::size_t size) const { return {memory_ + begin, size}; }
  int Add(std::vector<Bytes> reads, std::vector<Bytes> writes) {
    return plan_.Add("node", Copy{}, std::move(reads), std::move(writes));
  }
  const Edges& After(int node) const { return plan_.nodes()[static_cast<std::size_t>(node)].after; }

  char memory_[64] = {};
  Plan plan_;
};

TEST_F(PlanTest, OperationsOnDifferentBytesAreFree) {
  Add({At(0, 8)}, {At(8, 8)});
  const int other = Add({At(16, 8)}, {At(24, 8)});
  EXPECT_EQ(After(other), Edges{});
  EXPECT_FALSE(plan_.Waits(1, 0));
}

TEST_F(PlanTest, TwoReadersOfTheSameBytesAreFree) {
  Add({At(0, 8)}, {At(8, 8)});
  EXPECT_EQ(After(Add({At(0, 8)}, {At(16, 8)})), Edges{});
}

TEST_F(PlanTest, AReaderWaitsForTheWriter) {
  Add({}, {At(0, 8)});
  EXPECT_EQ(After(Add({At(7, 1)}, {})), Edges{0});
  EXPECT_TRUE(plan_.Waits(1, 0));
  EXPECT_FALSE(plan_.Waits(0, 1));
}

TEST_F(PlanTest, AWriterWaitsForTheReaderAndForTheWriterBefore) {
  Add({At(0, 8)}, {});
  EXPECT_EQ(After(Add({}, {At(4, 8)})), Edges{0});
  EXPECT_EQ(After(Add({}, {At(11, 2)})), Edges{1});
}

TEST_F(PlanTest, NeighbouringAndEmptyRangesDoNotTouch) {
  Add({}, {At(0, 8)});
  EXPECT_EQ(After(Add({At(8, 8)}, {})), Edges{});
  EXPECT_EQ(After(Add({At(4, 0)}, {})), Edges{});
}

TEST_F(PlanTest, AnEdgeThatFollowsFromOthersIsLeftOut) {
  Add({}, {At(0, 8)});
  Add({At(0, 8)}, {At(8, 8)});
  const int last = Add({At(0, 8), At(8, 8)}, {});
  EXPECT_EQ(After(last), Edges{1});
  EXPECT_TRUE(plan_.Waits(last, 0));
}

TEST_F(PlanTest, TwoBranchesMeet) {
  Add({}, {At(0, 8), At(8, 8)});
  Add({At(0, 8)}, {At(16, 8)});
  Add({At(8, 8)}, {At(24, 8)});
  EXPECT_EQ(After(Add({At(16, 16)}, {})), (Edges{1, 2}));
}

TEST_F(PlanTest, ProductsOfTheLibraryWaitForEachOtherForTheirWorkspace) {
  plan_.Add("product", LargeGemm{}, {At(0, 8)}, {At(8, 8)});
  Add({At(0, 8)}, {At(32, 8)});
  plan_.Add("product", LargeGemm{}, {At(0, 8)}, {At(16, 8)});
  plan_.Add("product", LargeGemm{}, {At(0, 8)}, {At(24, 8)});
  EXPECT_EQ(After(1), Edges{});
  EXPECT_EQ(After(2), Edges{0});
  EXPECT_EQ(After(3), Edges{2});
}

// Against the definition, on random plans: exactly the pairs that a chain of conflicts joins wait,
// and no edge can be left out.
TEST(Plan, KeepsExactlyTheNeededEdges) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::size_t cells = 1 + random.Below(12);
    const std::size_t nodes = 1 + random.Below(20);
    std::vector<char> memory(cells);
    std::vector<std::set<std::size_t>> reads(nodes), writes(nodes);
    Plan plan;
    for (std::size_t i = 0; i < nodes; ++i) {
      std::vector<Bytes> r, w;
      for (std::size_t n = random.Below(3); n > 0; --n) {
        const std::size_t cell = random.Below(cells);
        reads[i].insert(cell);
        r.push_back({&memory[cell], 1});
      }
      for (std::size_t n = random.Below(3); n > 0; --n) {
        const std::size_t cell = random.Below(cells);
        writes[i].insert(cell);
        w.push_back({&memory[cell], 1});
      }
      plan.Add("node", Copy{}, r, w);
    }
    std::vector<std::vector<bool>> waits(nodes, std::vector<bool>(nodes));
    for (std::size_t i = 0; i < nodes; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        for (std::size_t cell = 0; cell < cells; ++cell) {
          const bool i_writes = writes[i].contains(cell), j_writes = writes[j].contains(cell);
          const bool i_reads = reads[i].contains(cell), j_reads = reads[j].contains(cell);
          if ((i_writes && (j_writes || j_reads)) || (i_reads && j_writes)) waits[i][j] = true;
        }
      }
    }
    for (std::size_t k = 0; k < nodes; ++k) {
      for (std::size_t i = 0; i < nodes; ++i) {
        for (std::size_t j = 0; j < nodes; ++j) {
          if (waits[i][k] && waits[k][j]) waits[i][j] = true;
        }
      }
    }
    for (std::size_t i = 0; i < nodes; ++i) {
      Edges needed;
      for (std::size_t j = 0; j < i; ++j) {
        EXPECT_EQ(plan.Waits(static_cast<int>(i), static_cast<int>(j)), waits[i][j]);
        bool implied = false;
        for (std::size_t k = j + 1; k < i; ++k) implied |= waits[i][k] && waits[k][j];
        if (waits[i][j] && !implied) needed.push_back(static_cast<int>(j));
      }
      EXPECT_EQ(plan.nodes()[i].after, needed);
    }
  }
}

}  // namespace
}  // namespace passel::cuda

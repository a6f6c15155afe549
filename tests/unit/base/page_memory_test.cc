#include "base/page_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace passel {
namespace {

using testing::Each;

std::uintptr_t PageOf(const void* at) {
  return reinterpret_cast<std::uintptr_t>(at) / static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
}

// As small as they are: heap memory that is taken between them lies on other pages.
TEST(PageFloats, HaveTheirPagesForThemselves) {
  std::vector<PageFloats> ours;
  std::vector<std::unique_ptr<char[]>> neighbours;
  for (const std::size_t count : {1u, 16u, 1000u, 1024u, 1025u, 5000u}) {
    ours.emplace_back(count);
    for (int i = 0; i < 20; ++i) neighbours.push_back(std::make_unique<char[]>(48));
  }
  for (const PageFloats& memory : ours) {
    const auto floats = memory.floats();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(floats.data()) % 4096, 0u);
    EXPECT_THAT(floats, Each(0.f));
    const std::uintptr_t first = PageOf(floats.data()), last = PageOf(&floats.back());
    for (const auto& neighbour : neighbours) {
      EXPECT_TRUE(PageOf(&neighbour[47]) < first || PageOf(&neighbour[0]) > last);
    }
    for (const PageFloats& other : ours) {
      if (&other == &memory) continue;
      EXPECT_TRUE(PageOf(&other.floats().back()) < first || PageOf(other.floats().data()) > last);
    }
    floats.back() = 1;
  }
}

TEST(PageFloats, MayBeNone) { EXPECT_TRUE(PageFloats(0).floats().empty()); }

TEST(PageFloats, StayWhereTheyAreWhenTheirOwnerMoves) {
  PageFloats one(7);
  const float* const at = one.floats().data();
  const PageFloats two = std::move(one);
  EXPECT_EQ(two.floats().data(), at);
  EXPECT_EQ(two.floats().size(), 7u);
}

}  // namespace
}  // namespace passel

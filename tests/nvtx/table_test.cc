// The one table of events, base/nvtx_events.inc: its names, and docs/profiling.md.

#include <set>

#include "nvtx/nvtx_job.h"

namespace passel::testing {
namespace {

TEST(NvtxTableTest, NoTwoEventsHaveTheSameName) {
  std::set<std::string> names;
  for (const TableEntry& entry : EventTable()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
  }
}

// What stands there between its marks is this; put it there after a change of the table.
TEST(NvtxTableTest, TheDocsSayWhatTheTableSays) {
  std::string expected;
  for (const auto& [kind, name] : {std::pair{EventKind::kRange, "range"},
                                   {EventKind::kSpan, "span"},
                                   {EventKind::kMark, "mark"}}) {
    expected +=
        fmt::format("\n| {} | category | of | payload | what |\n|---|---|---|---|---|\n", name);
    for (const TableEntry& entry : EventTable()) {
      if (entry.kind != kind) continue;
      expected += fmt::format("| `{}` | {} | {} | {} | {} |\n", entry.name, entry.category,
                              entry.who, entry.payload, entry.what);
    }
  }
  const std::string page = ReadText(PASSEL_SOURCE_DIR "/docs/profiling.md");
  const std::string begin = "<!-- begin events -->\n", end = "\n<!-- end events -->";
  const std::size_t from = page.find(begin), to = page.find(end);
  ASSERT_TRUE(from != std::string::npos && to != std::string::npos && from < to);
  EXPECT_EQ(page.substr(from + begin.size(), to - from - begin.size()), expected) << expected;
}

}  // namespace
}  // namespace passel::testing

#include "nvtx/nvtx_job.h"

#include <algorithm>
#include <set>
#include <thread>

namespace passel::testing {

using ::testing::Contains;

const std::vector<TableEntry>& EventTable() {
  static const std::vector<TableEntry> entries = {
#define PASSEL_NVTX_EVENT(event, name, kind, category, who, payload, what) \
  {name, EventKind::kind, category, who, payload, what},
#include "base/nvtx_events.inc"
  };
  return entries;
}

namespace {

// Everything that was opened or marked is in the table, as what it is there.
void CheckEvents(const Recording& recording) {
  static const std::map<std::string, EventKind> kinds = {
      {"push", EventKind::kRange}, {"start", EventKind::kSpan}, {"mark", EventKind::kMark}};
  const std::map<std::string, std::uint32_t> categories = Categories(recording);
  std::map<std::string, const TableEntry*> entries;
  for (const TableEntry& entry : EventTable()) entries[entry.name] = &entry;
  for (const Call& call : recording.calls()) {
    const auto kind = kinds.find(call.op);
    if (kind == kinds.end()) continue;
    ASSERT_TRUE(entries.contains(call.message)) << call.message;
    const TableEntry& entry = *entries[call.message];
    EXPECT_EQ(kind->second, entry.kind) << call.message << " came by " << call.op;
    EXPECT_EQ(call.category, categories.at(entry.category)) << call.message;
  }
}

}  // namespace

Recording RecordedJob::Record(std::vector<std::string> flags, int code, int killed,
                              double seconds) {
  const Outcome outcome = Train(std::move(flags), seconds);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  Recording recording = Read();
  CheckWellFormed(recording, killed);
  return recording;
}

void CheckWellFormed(const Recording& recording, int processes_killed) {
  EXPECT_FALSE(recording.calls().empty());
  std::set<pid_t> unfinished;
  for (const auto& [key, thread] : recording.threads()) {
    EXPECT_EQ(thread.pops_without_push, 0) << thread.name;
    if (thread.open > 0) unfinished.insert(key.first);
    for (const Node& node : thread.ranges) {
      if (node.end_ns == 0) continue;
      EXPECT_LE(node.call.ns, node.end_ns);
      // A child ends within its parent: popped in the reverse order of the pushes.
      if (node.parent < 0) continue;
      const Node& parent = thread.ranges[static_cast<std::size_t>(node.parent)];
      EXPECT_LE(parent.call.ns, node.call.ns) << node.call.message;
      if (parent.end_ns != 0) {
        EXPECT_GE(parent.end_ns, node.end_ns) << node.call.message;
      }
    }
  }
  EXPECT_LE(static_cast<int>(unfinished.size()), processes_killed) << "a range was left open";

  std::map<pid_t, std::set<std::string>> registered;
  std::map<pid_t, std::set<std::uint32_t>> named;
  std::map<pid_t, int> domains;
  std::set<pid_t> begun;
  for (const Call& call : recording.calls()) {
    EXPECT_NE(call.op, "plain") << "a call outside the domain";
    EXPECT_EQ(call.domain, call.op == "name_thread" ? "" : "passel") << call.op;
    if (call.op == "domain_create") ++domains[call.pid];
    if (call.op == "register_string") {
      EXPECT_TRUE(registered[call.pid].insert(call.message).second) << call.message << " twice";
      EXPECT_FALSE(begun.contains(call.pid)) << call.message << " was registered on the way";
    }
    if (call.op == "name_category") {
      EXPECT_TRUE(named[call.pid].insert(call.category).second) << call.message << " twice";
      EXPECT_FALSE(begun.contains(call.pid)) << call.message << " was named on the way";
    }
    if (call.op != "push" && call.op != "start" && call.op != "mark") continue;
    begun.insert(call.pid);
    EXPECT_TRUE(call.registered) << call.message << " went as text";
    EXPECT_THAT(registered[call.pid], Contains(call.message));
    EXPECT_THAT(named[call.pid], Contains(call.category)) << call.message;
    EXPECT_EQ(call.payload_type, 2) << call.message << ": int64 is expected";
  }
  for (const auto& [pid, count] : domains) EXPECT_EQ(count, 1);
  CheckEvents(recording);

  // Spans end once, and never before they began.
  std::set<std::pair<pid_t, std::uint64_t>> open;
  for (const Call& call : recording.calls()) {
    if (call.op == "start") {
      EXPECT_TRUE(open.insert({call.pid, call.id}).second);
    } else if (call.op == "end") {
      EXPECT_EQ(open.erase({call.pid, call.id}), 1u);
    }
  }
  for (const auto& [pid, id] : open) unfinished.insert(pid);
  EXPECT_LE(static_cast<int>(unfinished.size()), processes_killed) << "a span was left open";
}

bool AllTrain(Sandbox& sandbox, std::int64_t steps) {
  const Deadline deadline = Deadline::After(Scaled(20.0));
  for (;;) {
    const nlohmann::json status = sandbox.Status();
    if (status.is_object() && status.contains("arena")) {
      const nlohmann::json& workers = status["arena"]["workers"];
      if (std::all_of(workers.begin(), workers.end(), [steps](const nlohmann::json& worker) {
            return worker["local_steps"].get<std::int64_t>() >= steps;
          })) {
        return true;
      }
    }
    if (deadline.Expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

Thread OnlyThread(const Recording& recording, const std::string& name) {
  const std::vector<Thread> threads = recording.Named(name);
  EXPECT_EQ(threads.size(), 1u) << name;
  return threads.empty() ? Thread() : threads[0];
}

std::map<std::string, std::uint32_t> Categories(const Recording& recording) {
  std::map<std::string, std::uint32_t> categories;
  for (const Call& call : recording.Calls("name_category")) {
    const auto [at, added] = categories.emplace(call.message, call.category);
    EXPECT_EQ(at->second, call.category) << call.message << " has two numbers";
  }
  return categories;
}

}  // namespace passel::testing

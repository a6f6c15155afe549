// recording.h - reads what recorder.cc wrote, and puts the ranges of each thread into each other.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace passel::testing {

/// One call, as recorder.cc describes it.
struct Call {
  pid_t pid = 0;
  pid_t tid = 0;
  std::int64_t ns = 0;
  std::string op, domain, message;
  bool registered = false;
  std::uint32_t category = 0;
  int payload_type = 0;
  std::int64_t payload = 0;
  std::uint64_t id = 0;
};

/// A range that was pushed and popped in one thread.
struct Node {
  Call call;
  std::int64_t end_ns = 0;  ///< 0: it was never popped
  int parent = -1;          ///< in Thread::ranges; -1: outermost
  std::vector<int> children;
};

struct Thread {
  std::string name;  ///< by name_thread; "" if it has none
  std::vector<Node> ranges;
  int pops_without_push = 0;
  int open = 0;  ///< never popped

  /// Of all ranges with this message, in order.
  std::vector<Node> Named(const std::string& message) const;
  /// Messages of the children of `node`, in order: "pull compute push".
  std::string Children(const Node& node) const;
};

class Recording {
 public:
  /// A file that is not there is an empty record.
  explicit Recording(const std::string& path);

  const std::vector<Call>& calls() const { return calls_; }
  std::vector<Call> Calls(const std::string& op, const std::string& message = "") const;
  std::vector<Call> Marks(const std::string& message) const { return Calls("mark", message); }
  const std::map<std::pair<pid_t, pid_t>, Thread>& threads() const { return threads_; }
  /// The threads of this name, of all processes, in order of their first call.
  std::vector<Thread> Named(const std::string& name) const;
  /// Names of all threads that have one, sorted, each once.
  std::vector<std::string> ThreadNames() const;

 private:
  std::vector<Call> calls_;
  std::map<std::pair<pid_t, pid_t>, Thread> threads_;
};

}  // namespace passel::testing

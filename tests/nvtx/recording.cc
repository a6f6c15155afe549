#include "nvtx/recording.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

namespace passel::testing {

std::vector<Node> Thread::Named(const std::string& message) const {
  std::vector<Node> found;
  for (const Node& node : ranges) {
    if (node.call.message == message) found.push_back(node);
  }
  return found;
}

std::string Thread::Children(const Node& node) const {
  std::string messages;
  for (const int child : node.children) {
    if (!messages.empty()) messages += ' ';
    messages += ranges[static_cast<std::size_t>(child)].call.message;
  }
  return messages;
}

Recording::Recording(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    EXPECT_TRUE(json.is_object()) << line;
    if (!json.is_object()) continue;
    Call call;
    call.pid = json["pid"];
    call.tid = json["tid"];
    call.ns = json["ns"];
    call.op = json["op"];
    call.domain = json["domain"];
    call.message = json["message"];
    call.registered = json["registered"];
    call.category = json["category"];
    call.payload_type = json["payload_type"];
    call.payload = json["payload"];
    call.id = json["id"];
    calls_.push_back(call);
  }
  std::map<std::pair<pid_t, pid_t>, std::vector<int>> open;
  for (const Call& call : calls_) {
    const std::pair key{call.pid, call.tid};
    Thread& thread = threads_[key];
    std::vector<int>& stack = open[key];
    if (call.op == "name_thread") thread.name = call.message;
    if (call.op == "push") {
      Node node;
      node.call = call;
      if (!stack.empty()) node.parent = stack.back();
      const int index = static_cast<int>(thread.ranges.size());
      if (node.parent >= 0) {
        thread.ranges[static_cast<std::size_t>(node.parent)].children.push_back(index);
      }
      thread.ranges.push_back(std::move(node));
      stack.push_back(index);
    } else if (call.op == "pop") {
      if (stack.empty()) {
        ++thread.pops_without_push;
      } else {
        thread.ranges[static_cast<std::size_t>(stack.back())].end_ns = call.ns;
        stack.pop_back();
      }
    }
    thread.open = static_cast<int>(stack.size());
  }
}

std::vector<Call> Recording::Calls(const std::string& op, const std::string& message) const {
  std::vector<Call> found;
  for (const Call& call : calls_) {
    if (call.op == op && (message.empty() || call.message == message)) found.push_back(call);
  }
  return found;
}

std::vector<Thread> Recording::Named(const std::string& name) const {
  std::vector<Thread> found;
  std::set<std::pair<pid_t, pid_t>> seen;
  for (const Call& call : calls_) {
    const std::pair key{call.pid, call.tid};
    if (!seen.insert(key).second) continue;
    if (const Thread& thread = threads_.at(key); thread.name == name) found.push_back(thread);
  }
  return found;
}

std::vector<std::string> Recording::ThreadNames() const {
  std::set<std::string> names;
  for (const auto& [key, thread] : threads_) {
    if (!thread.name.empty()) names.insert(thread.name);
  }
  return {names.begin(), names.end()};
}

}  // namespace passel::testing

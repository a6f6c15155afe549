// read_events.h - reads an event file back, frame by frame, as strictly as TensorBoard.

#pragma once

#include <event.pb.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "io/event_record.h"

namespace passel::test {

/// The event files of a folder, in the order of their names.
inline std::vector<std::string> EventFilesIn(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) {
      paths.push_back(entry.path().string());
    }
  }
  std::ranges::sort(paths);
  return paths;
}

/// The events of all whole records. `*rest`, unless null, gets the number of bytes behind them;
/// without it there must be none.
inline std::vector<event::Event> ReadEvents(const std::string& path, std::size_t* rest = nullptr) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  std::vector<event::Event> events;
  std::size_t at = 0;
  while (all.size() - at >= 16) {
    std::uint64_t length = 0;
    std::memcpy(&length, all.data() + at, 8);
    if (length > all.size() - at - 16) break;
    std::string framed;
    AppendRecord(std::string_view(all).substr(at + 12, length), &framed);
    EXPECT_EQ(all.substr(at, framed.size()), framed) << path << " at " << at;
    EXPECT_TRUE(events.emplace_back().ParseFromString(all.substr(at + 12, length))) << at;
    at += framed.size();
  }
  if (rest == nullptr) {
    EXPECT_EQ(at, all.size()) << path;
  } else {
    *rest = all.size() - at;
  }
  return events;
}

/// The steps at which a tag is told, in the order of the file; of one whose end is cut off, too.
inline std::vector<std::int64_t> StepsOfTag(const std::string& path, const std::string& tag) {
  std::vector<std::int64_t> steps;
  std::size_t rest = 0;
  for (const event::Event& event : ReadEvents(path, &rest)) {
    for (const auto& value : event.summary().value()) {
      if (value.tag() == tag) steps.push_back(event.step());
    }
  }
  return steps;
}

/// Whether a file with such a value is in the folder, or comes there in time. They are flushed
/// after 1 s, 3 s and so on.
inline bool AwaitTag(const std::string& folder, const std::string& tag, Deadline deadline) {
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
    if (std::filesystem::exists(folder)) {
      for (const std::string& file : EventFilesIn(folder)) {
        if (!StepsOfTag(file, tag).empty()) return true;
      }
    }
    if (deadline.Expired()) return false;
  }
}

}  // namespace passel::test

// temp_marker.h - a path where no file is yet, for failpoints that are to be taken once.

#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <string>

namespace passel::testing {

class TempMarker {
 public:
  TempMarker() {
    static std::atomic<int> count{0};
    path_ = ::testing::TempDir() + "passel-marker." + std::to_string(::getpid()) + "." +
            std::to_string(count.fetch_add(1));
    ::unlink(path_.c_str());
  }
  ~TempMarker() { ::unlink(path_.c_str()); }
  TempMarker(const TempMarker&) = delete;
  TempMarker& operator=(const TempMarker&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace passel::testing

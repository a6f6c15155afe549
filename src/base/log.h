// log.h - one line per event, on standard error and in a file if one is named:
//
//   2026-11-21T12:28:57.677+01:00 I [worker/1] text
//   {"time":"2026-11-21T12:28:57.677+01:00","level":"info","task":"worker/1","message":"text"}
//
// Thread safe. No line waits for whoever reads it (base/output.h). It is written with a single
// write(2), so lines of up to 4 KiB of several processes that share a pipe or a file do not mix.

#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace passel {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

/// Lines below this level are dropped. Default kInfo.
void SetLogLevel(LogLevel level);
/// "debug", "info", "warning" or "error"; false for anything else.
bool ParseLogLevel(std::string_view text, LogLevel* level);
/// "text" or "json"; false for anything else.
bool ParseLogFormat(std::string_view text, LogFormat* format);
/// Sets the format of the lines to come. Default kText.
void SetLogFormat(LogFormat format);
LogFormat GetLogFormat();
/// Lines are appended to this file too; it is made if it is not there. Errors: kInvalidArgument if
/// it is no plain file or cannot be written.
Status OpenLogFile(const std::string& path);
/// For example "worker/1"; empty for the supervisor and for one-task programs.
void SetLogName(std::string name);

void LogLine(LogLevel level, std::string_view text);

/// Counts events that others can cause as often as they like, and says when to tell of them: at
/// once of the first, then at most once in ten seconds. One thread at a time.
class EventTally {
 public:
  void Count() { ++count_; }
  /// MonotonicNs() at which there is something to tell; INT64_MAX if there is nothing.
  std::int64_t due_ns() const { return count_ == 0 ? INT64_MAX : next_ns_; }
  /// How many there were since the last telling, if it is time to tell; else 0. `now_ns`: of
  /// MonotonicNs().
  std::uint64_t Take(std::int64_t now_ns);

 private:
  std::uint64_t count_ = 0;
  std::int64_t next_ns_ = 0;
};

template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace passel

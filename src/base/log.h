// log.h - one line per event, on standard error, with the task's name before it.
//
// Thread safe. The line is written with a single write(2), so lines of several processes that
// share a terminal do not mix.

#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

namespace passel {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Lines below this level are dropped. Default kInfo.
void SetLogLevel(LogLevel level);
/// "debug", "info", "warning" or "error"; false for anything else.
bool ParseLogLevel(std::string_view text, LogLevel* level);
/// For example "worker/1"; empty for the supervisor and for one-task programs.
void SetLogName(std::string name);

void LogLine(LogLevel level, std::string_view text);

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

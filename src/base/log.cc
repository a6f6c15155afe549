#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace passel {
namespace {

// spdlog's own stderr sink goes through stdio; this one writes each line with one system call.
class OneWriteSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    // A failed write to stderr has nowhere to be reported.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  }
  void flush_() override {}
};

std::mutex g_mutex;  // guards the replacement of g_logger
std::shared_ptr<spdlog::logger> g_logger;
spdlog::level::level_enum g_level = spdlog::level::info;

std::shared_ptr<spdlog::logger> MakeLogger(std::string name) {
  const char* pattern = name.empty() ? "%H:%M:%S.%e %L %v" : "%H:%M:%S.%e %L [%n] %v";
  auto logger = std::make_shared<spdlog::logger>(std::move(name), std::make_shared<OneWriteSink>());
  logger->set_pattern(pattern);
  logger->set_level(g_level);
  return logger;
}

std::shared_ptr<spdlog::logger> Logger() {
  const std::lock_guard lock(g_mutex);
  if (!g_logger) g_logger = MakeLogger("");
  return g_logger;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// Names of files and values of flags may hold line ends and what moves a terminal's cursor.
std::string OneLine(std::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return line;
}

}  // namespace

void SetLogLevel(LogLevel level) {
  const std::lock_guard lock(g_mutex);
  g_level = ToSpdlog(level);
  if (g_logger) g_logger->set_level(g_level);
}

bool ParseLogLevel(std::string_view text, LogLevel* level) {
  if (text == "debug")
    *level = LogLevel::kDebug;
  else if (text == "info")
    *level = LogLevel::kInfo;
  else if (text == "warning")
    *level = LogLevel::kWarning;
  else if (text == "error")
    *level = LogLevel::kError;
  else
    return false;
  return true;
}

void SetLogName(std::string name) {
  const std::lock_guard lock(g_mutex);
  g_logger = MakeLogger(std::move(name));
}

void LogLine(LogLevel level, std::string_view text) {
  const std::string line = OneLine(text);
  Logger()->log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace passel

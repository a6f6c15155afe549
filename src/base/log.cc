#include "base/log.h"

#include <fcntl.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "base/file_descriptor.h"
#include "base/json.h"
#include "base/output.h"

namespace passel {
namespace {

constexpr const char* kTimePattern = "%Y-%m-%dT%H:%M:%S.%e%z";
constexpr std::int64_t kTellEveryNs = 10'000'000'000;

struct LevelName {
  LogLevel level;
  const char* name;
  spdlog::level::level_enum spdlog;
};
constexpr LevelName kLevels[] = {{LogLevel::kDebug, "debug", spdlog::level::debug},
                                 {LogLevel::kInfo, "info", spdlog::level::info},
                                 {LogLevel::kWarning, "warning", spdlog::level::warn},
                                 {LogLevel::kError, "error", spdlog::level::err}};

std::mutex g_mutex;  // guards what follows
std::shared_ptr<spdlog::logger> g_logger;
std::string g_name;
spdlog::level::level_enum g_level = spdlog::level::info;
LogFormat g_format = LogFormat::kText;
std::shared_ptr<FileDescriptor> g_file;  // null: none

// One JSON object a line.
class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override {
    spdlog::memory_buf_t time;
    time_.format(message, time);
    Json json;
    json["time"] = std::string(time.data(), time.size());
    for (const LevelName& level : kLevels) {
      if (level.spdlog == message.level) json["level"] = level.name;
    }
    json["task"] = std::string(message.logger_name.data(), message.logger_name.size());
    json["message"] = std::string(message.payload.data(), message.payload.size());
    const std::string text = json.Write() + "\n";
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }

 private:
  spdlog::pattern_formatter time_{kTimePattern, spdlog::pattern_time_type::local, ""};
};

class Sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit Sink(std::shared_ptr<FileDescriptor> file) : file_(std::move(file)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    // Names of files and values of flags may hold line ends and what moves a terminal's cursor.
    // JSON has escaped them.
    std::replace_if(
        line.begin(), line.end() - 1, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
    Write(Stream::kErr, {line.data(), line.size()});
    if (!file_) return;
    const ssize_t written = ::write(file_->get(), line.data(), line.size());
    if (written == static_cast<ssize_t>(line.size()) || file_failed_) return;
    file_failed_ = true;  // told once; the lines to come may fit again
    Write(Stream::kErr, fmt::format("passel: the log file is not complete: {}\n",
                                    written < 0 ? std::strerror(errno) : "the disk is full"));
  }
  void flush_() override {}

 private:
  const std::shared_ptr<FileDescriptor> file_;
  bool file_failed_ = false;
};

// REQUIRES: g_mutex is held.
void MakeLogger() {
  g_logger = std::make_shared<spdlog::logger>(g_name, std::make_shared<Sink>(g_file));
  if (g_format == LogFormat::kJson) {
    g_logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    g_logger->set_pattern(std::string(kTimePattern) + (g_name.empty() ? " %L %v" : " %L [%n] %v"));
  }
  g_logger->set_level(g_level);
}

std::shared_ptr<spdlog::logger> Logger() {
  const std::lock_guard lock(g_mutex);
  if (!g_logger) MakeLogger();
  return g_logger;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  return kLevels[static_cast<std::size_t>(level)].spdlog;
}

}  // namespace

void SetLogLevel(LogLevel level) {
  const std::lock_guard lock(g_mutex);
  g_level = ToSpdlog(level);
  if (g_logger) g_logger->set_level(g_level);
}

bool ParseLogLevel(std::string_view text, LogLevel* level) {
  for (const LevelName& known : kLevels) {
    if (text != known.name) continue;
    *level = known.level;
    return true;
  }
  return false;
}

bool ParseLogFormat(std::string_view text, LogFormat* format) {
  if (text != "text" && text != "json") return false;
  *format = text == "json" ? LogFormat::kJson : LogFormat::kText;
  return true;
}

void SetLogFormat(LogFormat format) {
  const std::lock_guard lock(g_mutex);
  g_format = format;
  MakeLogger();
}

LogFormat GetLogFormat() {
  const std::lock_guard lock(g_mutex);
  return g_format;
}

Status OpenLogFile(const std::string& path) {
  // Not waiting for the reader of a pipe; a plain file does not know the flag.
  auto file = std::make_shared<FileDescriptor>(::open(
      path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666));
  if (!file->valid()) {
    return InvalidArgument(
        fmt::format("{} cannot be opened for writing: {}", path, std::strerror(errno)));
  }
  struct stat info {};
  if (::fstat(file->get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return InvalidArgument(fmt::format("{} is no plain file, and lines are appended to one", path));
  }
  const std::lock_guard lock(g_mutex);
  g_file = std::move(file);
  MakeLogger();
  return {};
}

void SetLogName(std::string name) {
  const std::lock_guard lock(g_mutex);
  g_name = std::move(name);
  MakeLogger();
}

void LogLine(LogLevel level, std::string_view text) {
  Logger()->log(ToSpdlog(level), spdlog::string_view_t(text.data(), text.size()));
}

std::uint64_t EventTally::Take(std::int64_t now_ns) {
  if (count_ == 0 || now_ns < next_ns_) return 0;
  next_ns_ = now_ns + kTellEveryNs;
  return std::exchange(count_, 0);
}

}  // namespace passel

#include "io/event_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "io/event_record.h"

namespace passel {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";
// Names sort by time as long as the seconds have ten digits.
constexpr std::int64_t kMostSeconds = 9'999'999'999;
constexpr std::size_t kMostBuffered = std::size_t{1} << 20;  // bytes
constexpr int kTries = 100;

std::string HostName() {
  std::array<char, 256> name{};
  (void)::gethostname(name.data(), name.size() - 1);
  std::string host(name.data());
  std::ranges::replace(host, '/', '_');
  return host.empty() ? "localhost" : host;
}

// The seconds in the name of the newest event file of a folder; 0 if there is none.
Result<std::int64_t> NewestSeconds(const std::string& folder) {
  std::int64_t newest = 0;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    std::int64_t seconds = 0;
    const char* const begin = name.data() + kPrefix.size();
    const auto parsed = std::from_chars(begin, name.data() + name.size(), seconds);
    // Other names are somebody else's business.
    if (parsed.ec != std::errc() || seconds >= kMostSeconds) continue;
    newest = std::max(newest, seconds);
  }
  if (error) return ErrnoStatus(error.value(), fmt::format("cannot list {}", folder));
  return newest;
}

}  // namespace

Result<std::unique_ptr<EventFile>> EventFile::Create(const std::string& folder, double now,
                                                     const EventFileOptions& options,
                                                     FileOps& ops) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return ErrnoStatus(error.value(), fmt::format("cannot make the folder {}", folder));
  PASSEL_ASSIGN_OR_RETURN(const std::int64_t newest, NewestSeconds(folder));
  const std::int64_t first = std::max(static_cast<std::int64_t>(now), newest + 1);
  std::string path;
  int fd = -1;
  int failed = EEXIST;
  // Others may make files here at the same time.
  for (int i = 0; i < kTries && failed == EEXIST; ++i) {
    path = fmt::format("{}/{}{:010}.{}", folder, kPrefix, first + i, HostName());
    failed = ops.Open(path, &fd);
  }
  if (failed != 0) return ErrnoStatus(failed, fmt::format("cannot create {}", path));
  std::unique_ptr<EventFile> file(new EventFile(path, fd, options, ops));
  file->Encode({static_cast<double>(static_cast<std::int64_t>(now)), 0, FileVersion{}});
  if (failed = ops.Write(fd, file->buffer_.data(), file->buffer_.size()); failed != 0) {
    ops.Unlink(path);  // best effort: the first error is the one to report
    return ErrnoStatus(failed, fmt::format("cannot write {}", path));
  }
  file->buffer_.clear();
  file->buffered_ = 0;
  // Signals are for the threads that await them.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  Status status;
  try {
    file->thread_ = std::thread([writer = file.get()] { writer->WriteAll(); });
  } catch (const std::system_error& no_thread) {
    status = ErrnoStatus(no_thread.code().value(), "cannot start a thread");
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!status.ok()) return status;
  return file;
}

EventFile::EventFile(std::string path, int fd, const EventFileOptions& options, FileOps& ops)
    : path_(std::move(path)), options_(options), ops_(ops), fd_(fd) {}

EventFile::~EventFile() { Close(); }

bool EventFile::Add(Event event) {
  {
    // Held by others for the time that it takes to move an event.
    const std::lock_guard lock(mutex_);
    if (closing_ || failed() || queue_.size() >= options_.max_queue) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    queue_.push_back(std::move(event));
  }
  changed_.notify_one();
  return true;
}

void EventFile::Close(std::optional<Event> last) {
  {
    const std::lock_guard lock(mutex_);
    if (last && !closing_) queue_.push_back(*std::move(last));
    closing_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  if (fd_ < 0) return;
  const int error = ops_.Close(std::exchange(fd_, -1));
  if (error != 0 && !failed()) Fail(error);
}

void EventFile::WriteAll() {
  std::int64_t flush_at_ns = MonotonicNs();  // the first event at once
  std::int64_t interval_ns = options_.first_interval.count();
  for (;;) {
    bool closing = false;
    if (const std::optional<Event> event = Take(flush_at_ns, &closing)) {
      for (const Event& other : options_.others ? options_.others() : std::vector<Event>()) {
        Encode(other);
      }
      Encode(*event);
    }
    if (closing || buffer_.size() >= kMostBuffered || MonotonicNs() >= flush_at_ns) {
      Flush();
      interval_ns = std::min<std::int64_t>(interval_ns, options_.flush_interval.count());
      flush_at_ns = MonotonicNs() + interval_ns;
      interval_ns *= 2;
    }
    if (closing) return;
  }
}

std::optional<Event> EventFile::Take(std::int64_t flush_at_ns, bool* closing) {
  std::unique_lock lock(mutex_);
  const auto something = [this] { return closing_ || !queue_.empty(); };
  if (buffer_.empty()) {
    changed_.wait(lock, something);
  } else {
    const std::int64_t left = std::max<std::int64_t>(0, flush_at_ns - MonotonicNs());
    changed_.wait_for(lock, std::chrono::nanoseconds(left), something);
  }
  if (queue_.empty()) {
    *closing = closing_;
    return std::nullopt;
  }
  std::optional<Event> event(std::move(queue_.front()));
  queue_.pop_front();
  return event;
}

void EventFile::Encode(const Event& event) {
  if (failed()) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  std::vector<std::string> left_out;
  const Result<std::string> data = EncodeEvent(event, &left_out);
  for (const std::string& sentence : left_out) Tell(sentence);
  if (!data.ok()) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    Tell(std::string(data.status().message()));
    return;
  }
  AppendRecord(*data, &buffer_);
  ++buffered_;
}

void EventFile::Flush() {
  if (buffer_.empty()) return;
  const int error = ops_.Write(fd_, buffer_.data(), buffer_.size());
  if (error != 0) Fail(error);
  buffer_.clear();
  buffered_ = 0;
}

// Part of a record may be there: nothing can follow it, and readers ignore it.
void EventFile::Fail(int error) {
  failed_.store(true, std::memory_order_relaxed);
  dropped_.fetch_add(buffered_, std::memory_order_relaxed);
  Tell(fmt::format("cannot write {} ({})", path_, std::strerror(error)));
}

void EventFile::Tell(const std::string& sentence) {
  if (told_of_.insert(sentence).second && options_.on_problem) options_.on_problem(sentence);
}

}  // namespace passel

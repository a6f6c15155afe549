#include "job/output_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/deadline.h"
#include "base/log.h"

namespace passel::job {
namespace {

// A line is not kept longer than this for its end to come.
constexpr std::size_t kMaxLine = 65536;
// Of one pipe, before it is another's turn.
constexpr int kMostPieces = 16;

bool SameFile(int a, int b) {
  struct stat first {
  }, second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino && !S_ISCHR(first.st_mode) == !S_ISCHR(second.st_mode);
}

// At most kMostLineBytes, with no half of a character of UTF-8 at the end.
std::string Shown(std::string_view line) {
  if (line.size() > OutputRelay::kMostLineBytes) {
    std::size_t end = OutputRelay::kMostLineBytes;
    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;
    line = line.substr(0, end);
  }
  std::string text(line);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  }
  return text;
}

}  // namespace

Result<std::unique_ptr<OutputRelay>> OutputRelay::Create() {
  std::unique_ptr<OutputRelay> relay(new OutputRelay);
  relay->shared_ = SameFile(STDOUT_FILENO, STDERR_FILENO);
  relay->wake_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!relay->wake_.valid()) return ErrnoStatus(errno, "cannot create an eventfd");
  // Signals are for the main thread, whose poll they end.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  Status status;
  try {
    relay->thread_ = std::thread([r = relay.get()] { r->Run(); });
  } catch (const std::system_error& error) {
    status = ErrnoStatus(error.code().value(), "cannot start a thread");
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!status.ok()) return status;
  return relay;
}

OutputRelay::~OutputRelay() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  Wake();
  thread_.join();
}

void OutputRelay::Wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto put = ::write(wake_.get(), &one, sizeof one);
}

Result<OutputRelay::Ends> OutputRelay::Open(int task, const std::string& prefix,
                                            FileDescriptor copy) {
  Ends ends;
  std::shared_ptr<const FileDescriptor> file;
  if (copy.valid()) file = std::make_shared<const FileDescriptor>(std::move(copy));
  std::list<Pipe> pipes;
  for (const Stream stream : {Stream::kOut, Stream::kErr}) {
    if (stream == Stream::kErr && shared_) break;
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot create a pipe");
    Pipe& pipe = pipes.emplace_back();
    pipe.read_end.Reset(fds[0]);
    pipe.stream = stream;
    pipe.task = task;
    pipe.prefix = prefix;
    pipe.copy = file;
    (stream == Stream::kOut ? ends.out : ends.shared_or_err).Reset(fds[1]);
    // The other end, which the task writes to, waits as ever.
    ::fcntl(fds[0], F_SETFL, O_NONBLOCK);
  }
  {
    const std::lock_guard lock(mutex_);
    Kept& kept = kept_[task];
    ++kept.life;
    kept.lines.clear();
    for (Pipe& pipe : pipes) pipe.life = kept.life;
    pipes_.splice(pipes_.end(), pipes);
  }
  Wake();
  return ends;
}

void OutputRelay::Run() {
  std::vector<pollfd> entries;
  for (bool stop = false; !stop;) {
    entries.assign(1, {wake_.get(), POLLIN, 0});
    {
      const std::lock_guard lock(mutex_);
      for (const Pipe& pipe : pipes_) entries.push_back({pipe.read_end.get(), POLLIN, 0});
    }
    ::poll(entries.data(), entries.size(), -1);
    std::uint64_t woken = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &woken, sizeof woken);
    std::unique_lock lock(mutex_);
    stop = stop_;
    auto pipe = pipes_.begin();
    // In the same order; those that were added meanwhile have their turn next time.
    for (std::size_t i = 1; i < entries.size(); ++i) {
      Got state = Got::kNothingNow;
      for (int piece = 0; piece < (stop || entries[i].revents != 0 ? kMostPieces : 0); ++piece) {
        state = Copy(*pipe);
        if (state != Got::kSome) break;
        // For those who wait: the pipe may be filled as fast as it is read.
        lock.unlock();
        lock.lock();
      }
      if (state == Got::kEnd || stop) {
        if (!pipe->begun.empty()) Pass(*pipe, std::exchange(pipe->begun, "") + "\n");
        pipe = pipes_.erase(pipe);
      } else {
        ++pipe;
      }
    }
  }
}

OutputRelay::Got OutputRelay::Copy(Pipe& pipe) {
  std::array<char, kMaxLine> buffer;
  const ssize_t got = ::read(pipe.read_end.get(), buffer.data(), buffer.size());
  if (got == 0) return Got::kEnd;
  if (got < 0) return errno == EINTR ? Got::kSome : Got::kNothingNow;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(got));
  const std::size_t end = text.rfind('\n');
  if (end == std::string_view::npos && pipe.begun.size() + text.size() < kMaxLine) {
    pipe.begun += text;
    return Got::kSome;
  }
  const std::size_t whole = end == std::string_view::npos ? text.size() : end + 1;
  pipe.begun += text.substr(0, whole);
  Pass(pipe, pipe.begun);
  pipe.begun = text.substr(whole);
  return Got::kSome;
}

// What is not taken at once, by a full disk say, is missing there.
void OutputRelay::WriteCopy(Pipe& pipe, std::string_view lines) {
  while (pipe.copy && !lines.empty()) {
    const ssize_t put = ::write(pipe.copy->get(), lines.data(), lines.size());
    if (put > 0) {
      lines.remove_prefix(static_cast<std::size_t>(put));
    } else if (put == 0 || errno != EINTR) {
      LogWarning("the output of task {} cannot be written to its file any more: {}", pipe.task,
                 std::strerror(errno));
      pipe.copy.reset();
    }
  }
}

void OutputRelay::Pass(Pipe& pipe, std::string_view lines) {
  WriteCopy(pipe, lines);
  if (pipe.prefix.empty()) Write(pipe.stream, lines);
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    if (!pipe.prefix.empty()) {
      Write(pipe.stream, pipe.prefix + std::string(lines.substr(0, end)) + "\n");
    }
    Keep(pipe, lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
}

// A grandchild may have the pipe of a former life.
void OutputRelay::Keep(const Pipe& pipe, std::string_view line) {
  Kept& kept = kept_[pipe.task];
  if (pipe.life != kept.life || line.empty()) return;
  kept.lines.push_back(Shown(line));
  if (kept.lines.size() > kLastLines) kept.lines.pop_front();
}

void OutputRelay::Settle(int task, std::chrono::nanoseconds limit) {
  const Deadline deadline = Deadline::After(limit);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      int waiting = 0;
      for (Pipe& pipe : pipes_) {
        int bytes = 0;
        if (pipe.task == task && ::ioctl(pipe.read_end.get(), FIONREAD, &bytes) == 0) {
          waiting += bytes;
        }
      }
      if (waiting == 0) return;
    }
    if (deadline.Expired()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::vector<std::string> OutputRelay::LastLines(int task) const {
  const std::lock_guard lock(mutex_);
  const auto kept = kept_.find(task);
  if (kept == kept_.end()) return {};
  std::vector<std::string> lines(kept->second.lines.begin(), kept->second.lines.end());
  for (const Pipe& pipe : pipes_) {  // words without the end of their line
    if (pipe.task == task && pipe.life == kept->second.life && !pipe.begun.empty()) {
      lines.push_back(Shown(pipe.begun));
    }
  }
  if (lines.size() > kLastLines) lines.erase(lines.begin(), lines.end() - kLastLines);
  return lines;
}

}  // namespace passel::job

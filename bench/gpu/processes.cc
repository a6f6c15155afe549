// processes.cc - processes that use one GPU in turn: this program, started again.
//
// Each child makes a context of its own, says "ready", hears when to begin, launches and waits for
// half a second, and says what it saw. A child never outlives its parent, nor its alarm.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <limits>
#include <list>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/gpu/kernels.h"
#include "bench/gpu/measure.h"
#include "bench/gpu/rows.h"

namespace gpu_micro {
namespace {

constexpr double kInTurnTime = 0.5e6;   // of launches in each child, in us
constexpr double kChildrenTime = 7e6;   // all that children may take, contexts included
constexpr unsigned kAlarmSeconds = 12;  // a child that nobody ended
constexpr std::size_t kWarmUp = 200;

void SendLine(int socket, const std::string& line) {
  const std::string text = line + "\n";
  if (send(socket, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) {
    throw std::runtime_error("a process does not listen");
  }
}

std::string ReceiveLine(int socket, double end) {
  std::string line;
  for (;;) {
    pollfd waits{socket, POLLIN, 0};
    const double left = end - Now();
    const int ready = left > 0 ? poll(&waits, 1, static_cast<int>(left / 1000) + 1) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) throw std::runtime_error("a process does not answer in time");
    char c = 0;
    const ssize_t got = recv(socket, &c, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw std::runtime_error("a process ended before its answer");
    if (c == '\n') return line;
    line += c;
  }
}

class Child {
 public:
  Child() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw std::runtime_error("socketpair");
    }
    socket_ = ends[0];
    const std::string number = std::to_string(ends[1]);
    pid_ = fork();
    if (pid_ == 0) {
      // Nothing but system calls here: other threads may have held locks.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      fcntl(ends[1], F_SETFD, 0);
      execl("/proc/self/exe", "gpu_micro", kInTurnArgument, number.c_str(), nullptr);
      _exit(127);
    }
    close(ends[1]);
    if (pid_ < 0) {
      close(socket_);
      throw std::runtime_error("fork");
    }
  }
  ~Child() {
    close(socket_);
    // It has answered, or nobody waits for it any more. One that the driver holds is left behind.
    kill(pid_, SIGKILL);
    const double end = Now() + 0.5e6;
    while (waitpid(pid_, nullptr, WNOHANG) == 0 && Now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  int socket() const { return socket_; }

 private:
  int socket_ = -1;
  pid_t pid_ = -1;
};

struct Seen {
  double median = 0, percentile99 = 0;  // of a launch and wait, the worst of the processes
  double per_second = 0;                // of all processes
};

// `count` processes at the same time.
Seen RunChildren(int count) {
  const double end = Now() + kChildrenTime;
  std::list<Child> children(static_cast<std::size_t>(count));
  const auto hear = [&](const Child& child) {
    const std::string line = ReceiveLine(child.socket(), end);
    if (line.rfind("error ", 0) == 0) throw std::runtime_error("a process: " + line.substr(6));
    return line;
  };
  for (const Child& child : children) hear(child);
  const std::string begin = std::to_string(Now() + 10e3);
  for (const Child& child : children) SendLine(child.socket(), begin);
  Seen all;
  for (const Child& child : children) {
    const std::string line = hear(child);
    Seen one;
    if (std::sscanf(line.c_str(), "%lf %lf %lf", &one.median, &one.percentile99, &one.per_second) !=
        3) {
      throw std::runtime_error("a process answers '" + line + "'");
    }
    all.median = std::max(all.median, one.median);
    all.percentile99 = std::max(all.percentile99, one.percentile99);
    all.per_second += one.per_second;
  }
  return all;
}

std::string LaunchFrom(double begin, cudaStream_t stream) {
  std::vector<double> samples;
  samples.reserve(1 << 18);
  while (Now() < begin) {
  }
  double now = Now();
  while (now < begin + kInTurnTime) {
    LaunchEmpty(stream);
    Wait(stream);
    const double then = Now();
    samples.push_back(then - now);
    now = then;
  }
  const auto number = [](double value) { return std::to_string(value); };
  return number(Percentile(samples, 0.5)) + " " + number(Percentile(samples, 0.99)) + " " +
         number(static_cast<double>(samples.size()) / (now - begin) * 1e6);
}

}  // namespace

int RunInTurn(int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(kAlarmSeconds);
  try {
    TRY(cudaSetDevice(0));
    cudaStream_t stream = nullptr;
    TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (std::size_t i = 0; i < kWarmUp; ++i) {
      LaunchEmpty(stream);
      Wait(stream);
    }
    SendLine(socket, "ready");
    const double begin = std::stod(ReceiveLine(socket, Now() + kChildrenTime));
    SendLine(socket, LaunchFrom(begin, stream));
    return 0;
  } catch (const std::exception& error) {
    try {
      SendLine(socket, std::string("error ") + error.what());
    } catch (const std::exception&) {  // then the parent sees that nothing came
    }
    return 1;
  }
}

void MeasureProcesses() {
  Seen alone, two;
  alone.median = alone.percentile99 = alone.per_second = std::numeric_limits<double>::quiet_NaN();
  two = alone;
  const auto run = [](int count) {
    int mode = cudaComputeModeDefault;
    TRY(cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, 0));
    if (mode != cudaComputeModeDefault) throw NotOffered("this GPU is for one process at a time");
    return RunChildren(count);
  };
  Measure("launch and wait of one process alone, median", "5 us", [&] {
    alone = run(1);
    return alone.median;
  });
  Measure("launch and wait of one process alone, 99th percentile", nullptr,
          [&] { return Known(alone.percentile99); });
  Measure("launch and wait of two processes in turn, median of the slower", nullptr, [&] {
    two = run(2);
    return two.median;
  });
  Measure("launch and wait of two processes in turn, 99th percentile of the slower", nullptr,
          [&] { return Known(two.percentile99); });
  Measure(
      "launches per second of two processes in sum, by those of one alone", "1 or less",
      [&] { return Known(two.per_second) / Known(alone.per_second); }, "times");
}

}  // namespace gpu_micro

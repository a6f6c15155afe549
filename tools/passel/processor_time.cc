#include "tools/passel/processor_time.h"

#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "job/exit_code.h"

namespace passel {
namespace {

std::atomic<int> g_fd{-1};
char g_sentence[160];  // written before the handler is there

void OnLimit(int) {
  const int fd = g_fd.load();
  // A supervisor puts the sentence into a line of its own.
  static char before[] = "passel: ", after[] = "\n";
  const std::size_t around = fd == STDERR_FILENO ? 1 : 0;
  const iovec line[] = {{before, around * (sizeof before - 1)},
                        {g_sentence, std::strlen(g_sentence)},
                        {after, around * (sizeof after - 1)}};
  [[maybe_unused]] const auto put = ::writev(fd, line, 3);
  ::_exit(job::kExitUsage);
}

}  // namespace

void WatchProcessorTime(int fd) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_CPU, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  // At the hard limit the kernel kills without a word, at the soft one it sends SIGXCPU first.
  if (limit.rlim_cur == limit.rlim_max && limit.rlim_max > 1) {
    --limit.rlim_cur;
    ::setrlimit(RLIMIT_CPU, &limit);
  }
  if (g_fd.exchange(fd) >= 0) return;
  std::snprintf(g_sentence, sizeof g_sentence,
                "this process has used the %llu s of processor time that it may use: raise the "
                "limit with ulimit -t",
                static_cast<unsigned long long>(limit.rlim_cur));
  ::signal(SIGXCPU, OnLimit);
}

}  // namespace passel

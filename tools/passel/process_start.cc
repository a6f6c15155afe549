// What has to be settled before the libraries of this program begin to run: the size of the stack
// and the threads of the matrix library.
//
// The function below is in .preinit_array: the loader calls it when everything is relocated and no
// constructor has run, not even libc's, so that there is no environ and no stdio yet, and under a
// sanitizer no shadow memory (this file is built without one). It makes system calls only.
//
// Stack     What is measured to be enough for every command is 75 KiB (a thread that makes the
//           handshake); the limit leaves room for other processors' matrix kernels. A soft limit
//           that the hard one allows to raise is raised, for the tasks that are started here too.
// OpenBLAS  It starts a thread for each core in its constructor unless OPENBLAS_NUM_THREADS says 1.
//           These threads wait forever where address space is short, and where no thread may be
//           started the constructor ends the process by SIGINT. Here --threads_per_worker decides.
//
// Either change counts from the next start of a program only, so this one is executed once more.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

#include "job/exit_code.h"

namespace {

constexpr rlim_t kStackBytes = rlim_t{256} << 10;
constexpr rlim_t kUsualStackBytes = rlim_t{8} << 20;  // of the usual soft limit
constexpr char kVariable[] = "OPENBLAS_NUM_THREADS=";
constexpr std::size_t kNameLength = sizeof kVariable - 1;
constinit char g_setting[] = "OPENBLAS_NUM_THREADS=1";

// A sentence of words and numbers.
class Sentence {
 public:
  Sentence& operator<<(const char* text) {
    while (*text != '\0' && length_ < sizeof text_) text_[length_++] = *text++;
    return *this;
  }
  Sentence& operator<<(rlim_t number) {
    char digits[24];
    std::size_t at = sizeof digits;
    digits[--at] = '\0';
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return *this << &digits[at];
  }
  void Print() const { ::syscall(SYS_write, 2, text_, length_); }

 private:
  char text_[256];
  std::size_t length_ = 0;
};

// True: the limit was raised.
bool FitStack() {
  rlimit limit{};
  if (::syscall(SYS_prlimit64, 0, RLIMIT_STACK, nullptr, &limit) != 0) return false;
  if (limit.rlim_cur >= kStackBytes) return false;
  if (limit.rlim_max < kStackBytes) {
    Sentence sentence;
    sentence << "passel: the stack of this process may have " << limit.rlim_max << " bytes, "
             << kStackBytes << " are needed: raise the limit with ulimit -s "
             << kUsualStackBytes / 1024 << "\n";
    sentence.Print();
    ::syscall(SYS_exit_group, passel::job::kExitUsage);
  }
  limit.rlim_cur = limit.rlim_max < kUsualStackBytes ? limit.rlim_max : kUsualStackBytes;
  return ::syscall(SYS_prlimit64, 0, RLIMIT_STACK, &limit, nullptr) == 0;
}

bool HasPrefix(const char* text, const char* prefix, std::size_t length) {
  for (std::size_t i = 0; i < length; ++i) {
    if (text[i] != prefix[i]) return false;
  }
  return true;
}

// `envp` with OPENBLAS_NUM_THREADS=1; null if it says so already, or there is no memory.
char** WithoutBlasThreads(char** envp, bool even_if_it_is) {
  std::size_t count = 0;
  char** found = nullptr;
  for (; envp[count] != nullptr; ++count) {
    if (found == nullptr && HasPrefix(envp[count], kVariable, kNameLength)) found = envp + count;
  }
  if (found != nullptr) {
    const char* const value = *found + kNameLength;
    if (value[0] == '1' && value[1] == '\0') return even_if_it_is ? envp : nullptr;
    *found = g_setting;
    return envp;
  }
  const long memory = ::syscall(SYS_mmap, nullptr, (count + 2) * sizeof(char*),
                                PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == -1) return nullptr;
  auto* const longer = reinterpret_cast<char**>(memory);
  for (std::size_t i = 0; i < count; ++i) longer[i] = envp[i];
  longer[count] = g_setting;
  return longer;
}

void StartProcess(int /*argc*/, char** argv, char** envp) {
  const bool raised = FitStack();
  char** const environment = WithoutBlasThreads(envp, raised);
  if (environment == nullptr) return;
  // By its own name, which tools show; under /proc/self/exe where that name is another file's by
  // now. If neither can be, we go on as we are.
  char self[4096];
  const long length = ::syscall(SYS_readlink, "/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) return;
  self[length] = '\0';
  ::syscall(SYS_execve, self, argv, environment);
  ::syscall(SYS_execve, "/proc/self/exe", argv, environment);
}

using StartFunction = void (*)(int, char**, char**);
[[gnu::section(".preinit_array"), gnu::used]] constinit StartFunction g_start = StartProcess;

}  // namespace

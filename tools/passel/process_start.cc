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
//           It chooses its kernels by a list of processors. Version 0.3.21 takes some that are
//           newer (Raptor Lake, Emerald Rapids) for a Pentium 4, whose kernels are a third as
//           fast; on AMD's Zen those of Haswell are faster than those of Zen. So they are chosen
//           here, by what the processor can do, unless OPENBLAS_CORETYPE is set.
//
// Either change counts from the next start of a program only, so this one is executed once more.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

#include "job/blas_variables.h"
#include "job/exit_code.h"

namespace {

constexpr rlim_t kStackBytes = rlim_t{256} << 10;
constexpr rlim_t kUsualStackBytes = rlim_t{8} << 20;  // of the usual soft limit
constinit char g_one_thread[] = "OPENBLAS_NUM_THREADS=1";

constinit char g_core_is_ours[] = "PASSEL_BLAS_CORE=1";
constinit char g_cooperlake[] = "OPENBLAS_CORETYPE=Cooperlake";
constinit char g_skylake[] = "OPENBLAS_CORETYPE=SkylakeX";
constinit char g_haswell[] = "OPENBLAS_CORETYPE=Haswell";

bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
bool HasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

// By what the processor can do. Null: OpenBLAS is left to choose.
char* ChooseCore() {
  __builtin_cpu_init();
  if (HasAvx512()) return __builtin_cpu_supports("avx512bf16") ? g_cooperlake : g_skylake;
  return HasAvx2() ? g_haswell : nullptr;
}

bool IsWord(const char* given, const char* lower) {
  for (; *lower != '\0'; ++lower, ++given) {
    if ((*given | 0x20) != *lower) return false;
  }
  return *given == '\0';
}

// Whether OpenBLAS would use instructions that this processor has not, and the process die of them.
bool IsBeyondProcessor(const char* core) {
  __builtin_cpu_init();
  for (const char* wide : {"skylakex", "cooperlake", "sapphirerapids"}) {
    if (IsWord(core, wide)) return !HasAvx512();
  }
  for (const char* avx2 : {"haswell", "zen"}) {
    if (IsWord(core, avx2)) return !HasAvx2();
  }
  for (const char* fma4 : {"bulldozer", "piledriver", "steamroller", "excavator"}) {
    if (IsWord(core, fma4)) return !__builtin_cpu_supports("fma4");
  }
  return false;
}

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

// The value, if `entry` is NAME=value of that name; else null.
const char* ValueOf(const char* entry, const char* name) {
  for (; *name != '\0'; ++name, ++entry) {
    if (*entry != *name) return nullptr;
  }
  return *entry == '=' ? entry + 1 : nullptr;
}

// `envp` with what OpenBLAS is to find; null if it says so already, or there is no memory.
char** WithBlasSettings(char** envp, bool even_if_it_is) {
  std::size_t count = 0;
  char** threads = nullptr;
  char** core = nullptr;
  for (; envp[count] != nullptr; ++count) {
    if (threads == nullptr && ValueOf(envp[count], "OPENBLAS_NUM_THREADS") != nullptr) {
      threads = envp + count;
    }
    if (core == nullptr && ValueOf(envp[count], passel::job::kBlasCore) != nullptr) {
      core = envp + count;
    }
  }
  const char* const named = core == nullptr ? "" : ValueOf(*core, passel::job::kBlasCore);
  if (IsBeyondProcessor(named)) {
    Sentence sentence;
    sentence << "passel: " << *core
             << " names kernels with instructions that this processor has not: "
             << "unset it, and passel chooses\n";
    sentence.Print();
    ::syscall(SYS_exit_group, passel::job::kExitUsage);
  }
  const char* const given = threads == nullptr ? "" : ValueOf(*threads, "OPENBLAS_NUM_THREADS");
  const bool one_thread = given[0] == '1' && given[1] == '\0';
  char* const chosen = named[0] != '\0' ? nullptr : ChooseCore();
  if (one_thread && chosen == nullptr) return even_if_it_is ? envp : nullptr;
  const long memory = ::syscall(SYS_mmap, nullptr, (count + 4) * sizeof(char*),
                                PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == -1) return nullptr;
  auto* const longer = reinterpret_cast<char**>(memory);
  std::size_t length = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_core = ValueOf(envp[i], passel::job::kBlasCore) != nullptr;
    if (envp + i == threads || (chosen != nullptr && is_core)) continue;
    longer[length++] = envp[i];
  }
  longer[length++] = g_one_thread;
  if (chosen != nullptr) {
    longer[length++] = chosen;
    longer[length++] = g_core_is_ours;
  }
  return longer;
}

void StartProcess(int /*argc*/, char** argv, char** envp) {
  const bool raised = FitStack();
  char** const environment = WithBlasSettings(envp, raised);
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

// fault_shim.cc - a library for LD_PRELOAD under which calls of a whole program fail, wait or kill
// it, and its wall clock jumps. tests/fault/faulty_disk_test.cc has its users.
//
//   PASSEL_FAULT=fsync:3:5          the third fsync() of each process fails with errno 5
//   PASSEL_FAULT=pwrite:2+:28       the second pwrite() and all after it
//   PASSEL_FAULT=any:7:5            the seventh of all calls that are known here
//   PASSEL_FAULT=fsync:1+:wait3000  each fsync() waits for 3 s first; it still does its work
//   PASSEL_FAULT=rename:1:kill      SIGKILL before the call
//   PASSEL_FAULT_PATH=checkpoints   counts calls on paths that have this in them, and no others
//   PASSEL_FAULT_LOG=FILE           gets a line "fsync PATH" for each that was hit
//   PASSEL_CLOCK=20:3600,-3600      CLOCK_REALTIME is off by one of these seconds, by the next one
//                                   every 20 ms, in turn
//
// Calls that have no path (pthread_create, mmap, futex, those of sockets, "new") are counted only
// without PASSEL_FAULT_PATH, or if they are named. What the C library calls for itself is not seen.

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

namespace {

struct Fault {
  char call[24] = "";
  long from = 0;
  bool onwards = false;
  enum { kFail, kWait, kKill } kind = kFail;
  long value = 0;  // errno, or milliseconds
  const char* path = nullptr;
  const char* log = nullptr;
};

const Fault& TheFault() {
  static const Fault fault = [] {
    Fault f;
    f.path = std::getenv("PASSEL_FAULT_PATH");
    f.log = std::getenv("PASSEL_FAULT_LOG");
    const char* const text = std::getenv("PASSEL_FAULT");
    char from[16] = "", what[16] = "";
    if (text == nullptr || std::sscanf(text, "%23[^:]:%15[^:]:%15s", f.call, from, what) != 3) {
      f.call[0] = '\0';
      return f;
    }
    f.from = std::atol(from);
    f.onwards = std::strchr(from, '+') != nullptr;
    if (std::strncmp(what, "wait", 4) == 0) {
      f.kind = Fault::kWait;
      f.value = std::atol(what + 4);
    } else if (std::strcmp(what, "kill") == 0) {
      f.kind = Fault::kKill;
    } else {
      f.value = std::atol(what);
    }
    return f;
  }();
  return fault;
}

void Log(const char* file, const char* call, const char* path) {
  char line[PATH_MAX + 64];
  const int size = std::snprintf(line, sizeof line, "%s %s\n", call, path);
  const long fd = ::syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (fd < 0 || size <= 0) return;
  (void)!::syscall(SYS_write, fd, line, static_cast<std::size_t>(size));
  ::syscall(SYS_close, fd);
}

// The errno value with which this call is to fail; 0: it does its work.
int Hit(const char* call, const char* path) {
  const Fault& fault = TheFault();
  const bool named = std::strcmp(fault.call, call) == 0;
  if (!named && std::strcmp(fault.call, "any") != 0) return 0;
  if (fault.path != nullptr && path == nullptr && !named) return 0;
  if (fault.path != nullptr && path != nullptr && std::strstr(path, fault.path) == nullptr) {
    return 0;
  }
  static std::atomic<long> calls{0};
  const long number = calls.fetch_add(1) + 1;
  if (number != fault.from && !(fault.onwards && number > fault.from)) return 0;
  if (fault.log != nullptr) Log(fault.log, call, path == nullptr ? "" : path);
  if (fault.kind == Fault::kKill) ::kill(::getpid(), SIGKILL);
  if (fault.kind != Fault::kWait) return static_cast<int>(fault.value);
  const timespec time = {fault.value / 1000, fault.value % 1000 * 1'000'000};
  ::nanosleep(&time, nullptr);
  return 0;
}

int HitFd(const char* call, int fd) {
  if (TheFault().call[0] == '\0') return 0;
  char link[32], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = ::readlink(link, path, sizeof path - 1);
  path[size < 0 ? 0 : size] = '\0';
  return Hit(call, path);
}

template <typename Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

bool Fails(int error) {
  if (error != 0) errno = error;
  return error != 0;
}

}  // namespace

#define REAL(name) static const auto real = Real<decltype(&::name)>(#name)

extern "C" {

int open(const char* path, int flags, ...) {
  using Open = int (*)(const char*, int, ...);
  static const auto real = Real<Open>("open");
  mode_t mode = 0;
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  return Fails(Hit("open", path)) ? -1 : real(path, flags, mode);
}
ssize_t read(int fd, void* data, size_t bytes) {
  REAL(read);
  return Fails(HitFd("read", fd)) ? -1 : real(fd, data, bytes);
}
ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
  REAL(pread);
  return Fails(HitFd("pread", fd)) ? -1 : real(fd, data, bytes, offset);
}
ssize_t write(int fd, const void* data, size_t bytes) {
  REAL(write);
  return Fails(HitFd("write", fd)) ? -1 : real(fd, data, bytes);
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  REAL(pwrite);
  return Fails(HitFd("pwrite", fd)) ? -1 : real(fd, data, bytes, offset);
}
int fsync(int fd) {
  REAL(fsync);
  return Fails(HitFd("fsync", fd)) ? -1 : real(fd);
}
int fstat(int fd, struct stat* info) noexcept {
  using Fstat = int (*)(int, struct stat*);
  static const auto real = Real<Fstat>("fstat");
  return Fails(HitFd("fstat", fd)) ? -1 : real(fd, info);
}
int ftruncate(int fd, off_t bytes) noexcept {
  using Ftruncate = int (*)(int, off_t);
  static const auto real = Real<Ftruncate>("ftruncate");
  return Fails(HitFd("ftruncate", fd)) ? -1 : real(fd, bytes);
}
int fcntl(int fd, int command, ...) {
  using Fcntl = int (*)(int, int, ...);
  static const auto real = Real<Fcntl>("fcntl");
  va_list more;
  va_start(more, command);
  void* const argument = va_arg(more, void*);
  va_end(more);
  return Fails(HitFd("fcntl", fd)) ? -1 : real(fd, command, argument);
}
int close(int fd) {
  REAL(close);
  const int error = HitFd("close", fd);
  const int result = real(fd);  // the descriptor is gone even if it fails
  return Fails(error) ? -1 : result;
}
int rename(const char* from, const char* to) noexcept {
  using Rename = int (*)(const char*, const char*);
  static const auto real = Real<Rename>("rename");
  return Fails(Hit("rename", to)) ? -1 : real(from, to);
}
int unlink(const char* path) noexcept {
  using Unlink = int (*)(const char*);
  static const auto real = Real<Unlink>("unlink");
  return Fails(Hit("unlink", path)) ? -1 : real(path);
}
int mkdir(const char* path, mode_t mode) noexcept {
  using Mkdir = int (*)(const char*, mode_t);
  static const auto real = Real<Mkdir>("mkdir");
  return Fails(Hit("mkdir", path)) ? -1 : real(path, mode);
}
int statvfs(const char* path, struct statvfs* info) noexcept {
  using Statvfs = int (*)(const char*, struct statvfs*);
  static const auto real = Real<Statvfs>("statvfs");
  return Fails(Hit("statvfs", path)) ? -1 : real(path, info);
}
DIR* opendir(const char* path) {
  REAL(opendir);
  return Fails(Hit("opendir", path)) ? nullptr : real(path);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = Real<Create>("pthread_create");
  if (const int error = Hit("pthread_create", nullptr)) return error;
  return real(thread, attributes, run, argument);
}

void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  using Mmap = void* (*)(void*, size_t, int, int, int, off_t);
  static const auto real = Real<Mmap>("mmap");
  if (Fails(Hit("mmap", nullptr))) return MAP_FAILED;
  return real(at, bytes, protection, flags, fd, offset);
}
int memfd_create(const char* name, unsigned flags) noexcept {
  using Create = int (*)(const char*, unsigned);
  static const auto real = Real<Create>("memfd_create");
  return Fails(Hit("memfd_create", nullptr)) ? -1 : real(name, flags);
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  using Allocate = int (*)(int, int, off_t, off_t);
  static const auto real = Real<Allocate>("fallocate");
  return Fails(Hit("fallocate", nullptr)) ? -1 : real(fd, mode, offset, bytes);
}
int connect(int fd, const sockaddr* address, socklen_t length) {
  using Connect = int (*)(int, const sockaddr*, socklen_t);
  static const auto real = Real<Connect>("connect");
  return Fails(Hit("connect", nullptr)) ? -1 : real(fd, address, length);
}
int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
  using Bind = int (*)(int, const sockaddr*, socklen_t);
  static const auto real = Real<Bind>("bind");
  return Fails(Hit("bind", nullptr)) ? -1 : real(fd, address, length);
}
int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  using Accept = int (*)(int, sockaddr*, socklen_t*, int);
  static const auto real = Real<Accept>("accept4");
  return Fails(Hit("accept4", nullptr)) ? -1 : real(fd, address, length, flags);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  REAL(sendmsg);
  return Fails(Hit("sendmsg", nullptr)) ? -1 : real(fd, message, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  REAL(recvmsg);
  return Fails(Hit("recvmsg", nullptr)) ? -1 : real(fd, message, flags);
}
// Of all calls that go this way only futex() fails, and a wake-up is never lost.
long syscall(long number, ...) noexcept {
  using Syscall = long (*)(long, ...);
  static const auto real = Real<Syscall>("syscall");
  long a[6];
  va_list more;
  va_start(more, number);
  for (long& argument : a) argument = va_arg(more, long);
  va_end(more);
  if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT &&
      Fails(Hit("futex", nullptr))) {
    return -1;
  }
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = ::syscall(SYS_clock_gettime, clock, now);
  static const char* const plan = std::getenv("PASSEL_CLOCK");
  constexpr clockid_t kWallClock = 0;
  if (result != 0 || clock != kWallClock || plan == nullptr) return static_cast<int>(result);
  timespec mono;
  ::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &mono);
  char* at = nullptr;
  const long every_ms = std::max(1L, std::strtol(plan, &at, 10));
  long offsets[32];
  long count = 0;
  while (count < 32 && (*at == ':' || *at == ',')) offsets[count++] = std::strtol(at + 1, &at, 10);
  if (count > 0) {
    now->tv_sec += offsets[(mono.tv_sec * 1000 + mono.tv_nsec / 1'000'000) / every_ms % count];
  }
  return 0;
}

}  // extern "C"

void* operator new(std::size_t bytes) {
  void* const memory = Hit("new", nullptr) != 0 ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

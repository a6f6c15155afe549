// peer.h - what the small programs of bench/peers share: their options, a clock, percentiles, and
// the update that each of them applies and verifies. It needs nothing but the system.
//
// Each program measures one system for one size and prints one JSON object per operation:
//   {"op": "push", "samples": 5000, "p50_us": 9.1, "p99_us": 12.0}
// Exit codes: 0 done; 1 it failed or its result is wrong, with one sentence on standard error;
// 2 wrong usage. A program that does not end is killed by SIGALRM after Options::limit_seconds,
// and its children end with it.
//
// The update is w -= g, float32, `elements` values. Initial values and gradients are small
// multiples of 1/4, so that a million updates are exact and every result is checked to the last
// bit.

#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

namespace peers {

struct Options {
  std::size_t elements = 0;  ///< float32 values of the one variable
  double seconds = 0.5;      ///< of measuring, per operation
  int first_cpu = 0;         ///< of the client (or writer 0, rank 0)
  int second_cpu = 1;        ///< of the server (or writer 1, rank 1)
  int limit_seconds = 60;    ///< then SIGALRM ends the program
  std::string variant;       ///< --variant NAME, for programs that know several
};

/// Called before a failure ends the program, if there is one.
inline void (*clean_up)() = nullptr;

[[noreturn]] inline void Fail(const char* who, const std::string& sentence, int code = 1) {
  if (clean_up != nullptr) clean_up();
  std::fprintf(stderr, "%s: %s\n", who, sentence.c_str());
  std::_Exit(code);
}

/// PROGRAM --elements N --seconds S --cpus A,B --limit S [--variant NAME]; ends the program with 2
/// when it is called in another way. Sets the alarm.
inline Options Parse(int argc, char** argv) {
  Options options;
  const char* who = argc > 0 ? argv[0] : "peer";
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 >= argc) Fail(who, name + " needs a value", 2);
    const char* value = argv[i + 1];
    if (name == "--elements") {
      options.elements = std::strtoull(value, nullptr, 10);
    } else if (name == "--seconds") {
      options.seconds = std::strtod(value, nullptr);
    } else if (name == "--cpus") {
      if (std::sscanf(value, "%d,%d", &options.first_cpu, &options.second_cpu) != 2)
        Fail(who, "--cpus is two processors, such as 0,1, but got " + std::string(value), 2);
    } else if (name == "--limit") {
      options.limit_seconds = std::atoi(value);
    } else if (name == "--variant") {
      options.variant = value;
    } else {
      Fail(who, name + " is not an option", 2);
    }
  }
  if (options.elements < 1 || options.elements > (std::size_t{1} << 26))
    Fail(who, "--elements must be 1 to 67108864", 2);
  if (!(options.seconds > 0) || options.limit_seconds < 1)
    Fail(who, "--seconds and --limit must be above 0", 2);
  ::alarm(static_cast<unsigned>(options.limit_seconds));
  return options;
}

/// The calling process runs on `cpu` alone.
inline void Pin(const char* who, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0)
    Fail(who, "cannot run on processor " + std::to_string(cpu) + ": " + std::strerror(errno));
}

/// For a child just forked by `parent`: it ends with it.
inline void DieWith(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) std::_Exit(1);
}

/// As fork(); the child runs on `cpu` alone and ends with us.
inline pid_t ForkOn(const char* who, int cpu) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) Fail(who, std::string("fork: ") + std::strerror(errno));
  if (child == 0) {
    DieWith(parent);
    Pin(who, cpu);
  }
  return child;
}

/// A socket that listens on a free port of the loopback interface, and its address.
inline int ListenOnLoopback(const char* who, sockaddr_in* address) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  *address = {};
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof *address;
  auto* const generic = reinterpret_cast<sockaddr*>(address);
  if (listener < 0 || ::bind(listener, generic, length) != 0 || ::listen(listener, 1) != 0 ||
      ::getsockname(listener, generic, &length) != 0) {
    Fail(who, std::string("cannot listen on a loopback port: ") + std::strerror(errno));
  }
  return listener;
}

inline std::int64_t NowNs() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

inline float InitialValue(std::size_t i) { return static_cast<float>(i % 7); }
inline float GradientValue(std::size_t i) {
  return 0.25F * static_cast<float>(static_cast<int>(i % 5) - 2);
}

inline std::vector<float> InitialValues(std::size_t elements) {
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) values[i] = InitialValue(i);
  return values;
}
inline std::vector<float> Gradient(std::size_t elements) {
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) values[i] = GradientValue(i);
  return values;
}

/// Ends the program with 1 unless values[0, elements) are what `pushes` updates make of them.
inline void Verify(const char* who, const float* values, std::size_t elements,
                   std::int64_t pushes) {
  for (std::size_t i = 0; i < elements; ++i) {
    const float expected = InitialValue(i) - static_cast<float>(pushes) * GradientValue(i);
    if (values[i] != expected) {
      Fail(who, "WRONG: after " + std::to_string(pushes) + " pushes element " + std::to_string(i) +
                    " is " + std::to_string(values[i]) + ", not " + std::to_string(expected));
    }
  }
}

/// In microseconds; every sample is kept.
using Samples = std::vector<double>;

/// Nearest rank. REQUIRES: samples are not empty.
inline double Percentile(Samples samples, double share) {
  const double rank = share * static_cast<double>(samples.size());
  auto index = static_cast<std::size_t>(rank);
  if (static_cast<double>(index) == rank && index > 0) --index;
  index = std::min(index, samples.size() - 1);
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(index),
                   samples.end());
  return samples[index];
}

inline void Print(const char* op, const Samples& samples) {
  std::printf("{\"op\": \"%s\", \"samples\": %zu, \"p50_us\": %.4f, \"p99_us\": %.4f}\n", op,
              samples.size(), Percentile(samples, 0.5), Percentile(samples, 0.99));
  std::fflush(stdout);
}

constexpr std::size_t kWarmUps = 5;
constexpr std::size_t kFewest = 20;   // samples
constexpr std::size_t kMost = 50000;  // samples
constexpr std::size_t kTurn = 20;     // updates of each of two writers between two agreements

/// Calls `once` for about `seconds` after a warm-up, each call timed. Closed loop.
template <typename Once>
Samples Measure(double seconds, Once&& once) {
  Samples samples;
  samples.reserve(kMost);
  for (std::size_t i = 0; i < kWarmUps; ++i) once();
  const std::int64_t end = NowNs() + static_cast<std::int64_t>(1e9 * seconds);
  for (;;) {
    const std::int64_t begin = NowNs();
    once();
    const std::int64_t now = NowNs();
    samples.push_back(1e-3 * static_cast<double>(now - begin));
    if (samples.size() >= kMost || (now >= end && samples.size() >= kFewest)) return samples;
  }
}

/// For what is shorter than the clock: `once` in batches of `batch`, a sample is a batch's mean.
template <typename Once>
Samples MeasureBatches(double seconds, int batch, Once&& once) {
  Samples samples = Measure(seconds, [&] {
    for (int i = 0; i < batch; ++i) once();
  });
  for (double& sample : samples) sample /= batch;
  return samples;
}

/// Measures and verifies what a client asks of a server: `push`, `pull`, and both in one call.
/// `seen` returns what the last pull brought. Fails the program where that is wrong.
template <typename Push, typename Pull, typename Both, typename Seen>
void MeasureClient(const char* who, const Options& options, Push&& push, Pull&& pull, Both&& both,
                   Seen&& seen) {
  std::int64_t pushes = 0;
  const auto counted = [&pushes](auto& operation) {
    return [&] {
      operation();
      ++pushes;
    };
  };
  const auto check = [&] {
    pull();
    Verify(who, seen(), options.elements, pushes);
  };
  counted(push)();
  check();
  const Samples pushed = Measure(options.seconds, counted(push));
  const Samples pulled = Measure(options.seconds, pull);
  const Samples round_trip = Measure(options.seconds, counted(both));
  check();
  Print("push", pushed);
  Print("pull", pulled);
  Print("push+pull", round_trip);
}

}  // namespace peers

// nvtx.h - what every process tells a profiler: ranges, spans, marks and thread names, in the NVTX
// domain "passel".
//
// Without a tool each call is one branch that is predicted, and nothing is allocated; in a build
// with PASSEL_NVTX=OFF nothing is left of it at all. A tool is found through the environment
// (NVTX_INJECTION64_PATH, which Nsight Systems sets), once, by Initialize(). All names and
// categories are registered there: later calls hand the tool a number.
//
// A range belongs to the thread that opened it and closes with its scope, however that is left. A
// span may overlap ranges and end in another thread. Times are the host's.
//
// Threads    Initialize() before the process has a second thread; the rest from any thread.
// Errors     None: a tool that cannot be loaded leaves everything off, and WarnIfMissing() says so.

#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace passel::nvtx {

/// Everything that is recorded, in the order of the one table, base/nvtx_events.inc.
enum class Event : std::uint8_t {
#define PASSEL_NVTX_EVENT(event, ...) event,
#include "base/nvtx_events.inc"
};

#if defined(PASSEL_NVTX)
inline constexpr bool kBuiltIn = true;
#else
inline constexpr bool kBuiltIn = false;
#endif

/// "NVTX 3.2 (/usr/local/cuda/include)", or why there is none.
std::string Describe();

/// Looks for a tool and registers all names. Further calls do nothing.
void Initialize();

/// Logs one sentence if the environment names a tool and it is not attached. After Initialize().
void WarnIfMissing();

/// The calling thread, "worker/0" for example.
void NameThread(const std::string& name);

namespace internal {
// Written once, by Initialize(), when there is one thread: read without ordering.
extern bool g_attached;
void Push(Event event, std::int64_t payload) noexcept;
void Pop() noexcept;
std::uint64_t Start(Event event, std::int64_t payload) noexcept;
void End(std::uint64_t id) noexcept;
void MarkNow(Event event, std::int64_t payload) noexcept;
}  // namespace internal

/// True if a tool listens.
inline bool Attached() noexcept { return kBuiltIn && internal::g_attached; }

/// A range of the calling thread: from here to the end of the scope, or to Close().
class [[nodiscard]] Range {
 public:
  /// `payload`: a step, a number of bytes or an index, as the event says.
  explicit Range(Event event, std::int64_t payload = 0) noexcept : open_(Attached()) {
    if (open_) [[unlikely]]
      internal::Push(event, payload);
  }
  ~Range() { Close(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  /// The ranges opened after this one are closed. Further calls do nothing.
  void Close() noexcept {
    if (open_) [[unlikely]]
      internal::Pop();
    open_ = false;
  }

 private:
  bool open_;
};

/// Something that may begin and end in different threads, or overlap ranges. Destroyed, it ends.
class [[nodiscard]] Span {
 public:
  Span() noexcept = default;
  explicit Span(Event event, std::int64_t payload = 0) noexcept : open_(Attached()) {
    if (open_) [[unlikely]]
      id_ = internal::Start(event, payload);
  }
  ~Span() { End(); }
  Span(Span&& other) noexcept
      : open_(std::exchange(other.open_, false)), id_(std::exchange(other.id_, 0)) {}
  Span& operator=(Span&& other) noexcept {
    if (this == &other) return *this;
    End();
    open_ = std::exchange(other.open_, false);
    id_ = std::exchange(other.id_, 0);
    return *this;
  }

  void End() noexcept {
    if (open_) [[unlikely]]
      internal::End(id_);
    open_ = false;
  }

 private:
  bool open_ = false;
  std::uint64_t id_ = 0;  // the tool's; it may be 0
};

/// A moment.
inline void Mark(Event event, std::int64_t payload = 0) noexcept {
  if (Attached()) [[unlikely]]
    internal::MarkNow(event, payload);
}

}  // namespace passel::nvtx

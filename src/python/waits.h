// waits.h - calls of the C interface as Python wants them: exceptions, waits without the GIL that
// the handler of a signal can end, one thread at a time.

#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "capi/passel.h"
#include "python/errors.h"

namespace passel::python {

/// Ctrl-C and other handlers of signals are answered so often in a wait. In seconds.
inline constexpr double kSlice = 0.1;

/// Throws what the handler of a signal has raised.
inline void CheckSignals() {
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

inline void Check(passel_status status) {
  if (status != PASSEL_OK) Raise(status, passel_error());
}

/// While it is there, handlers of signals run during the waits of this thread, which end when one
/// of them raises an exception. Made and destroyed with the GIL.
class Handlers {
 public:
  Handlers() : before_(std::exchange(Current(), this)) { passel_check_waits(&Run, this); }
  ~Handlers() {
    Current() = before_;
    passel_check_waits(before_ == nullptr ? nullptr : &Run, before_);
  }
  Handlers(const Handlers&) = delete;
  Handlers& operator=(const Handlers&) = delete;

  /// Throws what was raised.
  void Throw() const {
    if (raised_) throw nanobind::python_error();
  }

 private:
  static Handlers*& Current() {
    thread_local Handlers* current = nullptr;
    return current;
  }
  static std::int32_t Run(void* self) {
    const nanobind::gil_scoped_acquire with;
    bool& raised = static_cast<Handlers*>(self)->raised_;
    if (!raised) raised = PyErr_CheckSignals() != 0;
    return raised ? 1 : 0;
  }

  Handlers* const before_;  // of a call that a handler has interrupted
  bool raised_ = false;
};

/// `call` returns a passel_status, without the GIL.
template <typename Call>
void WithoutGil(const Call& call) {
  passel_status status;
  std::string sentence;
  const Handlers handlers;
  {
    const nanobind::gil_scoped_release without;
    status = call();
    if (status != PASSEL_OK) sentence = passel_error();
  }
  handlers.Throw();
  if (status != PASSEL_OK) Raise(status, sentence);
}

/// `call` gets the seconds that it may wait, and is repeated while it says "not yet", or `also`.
template <typename Call>
void Sliced(double timeout, const Call& call, passel_status also = PASSEL_DEADLINE_EXCEEDED) {
  using Clock = std::chrono::steady_clock;
  constexpr double kLongest = 1e8;  // seconds, of passel.h
  const bool is_time = timeout >= 0 && timeout <= kLongest;
  const auto end = Clock::now() + std::chrono::duration<double>(is_time ? timeout : 0.0);
  for (;;) {
    const double left = std::chrono::duration<double>(end - Clock::now()).count();
    passel_status status;
    std::string sentence;
    const Handlers handlers;
    {
      const nanobind::gil_scoped_release without;
      // What is no time goes to the library, which says so.
      status = call(is_time ? std::clamp(left, 0.0, kSlice) : timeout);
      if (status != PASSEL_OK) sentence = passel_error();
    }
    handlers.Throw();
    if (status == PASSEL_OK) return;
    CheckSignals();
    const bool not_yet = status == PASSEL_DEADLINE_EXCEEDED || status == also;
    if (!not_yet || left <= kSlice) Raise(status, sentence);
  }
}

/// One thread at a time in calls that wait without the GIL: the second one gets an exception.
class Turn {
 public:
  explicit Turn(std::mutex& mutex) : lock_(mutex, std::try_to_lock) {
    if (!lock_) {
      Raise(PASSEL_FAILED_PRECONDITION,
            "another thread is in a call of this job, or the one that a handler of a signal has "
            "interrupted: one at a time, but for stop(), stopped, global_step and mode");
    }
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace passel::python

// wait_check.h - waits that their thread can be called out of before their deadline passes.
//
// Who waits for others asks WaitIsOver() as often as it likes, and then does what it does at its
// deadline.
//
// Threads    Each has a check of its own; none to begin with.

#pragma once

#include <chrono>

namespace passel {

/// Called so often on a thread that waits.
inline constexpr std::chrono::milliseconds kWaitCheckPause{100};

struct WaitCheck {
  bool (*is_over)(void* argument) = nullptr;  ///< null: no check
  void* argument = nullptr;
};

/// From now on this thread's waits ask that.
void CheckWaits(WaitCheck check);
bool WaitsAreChecked();
/// Whether the wait of this thread is to end now.
bool WaitIsOver();

}  // namespace passel

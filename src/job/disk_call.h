// disk_call.h - a call that may never come back, since its disk hangs, on a thread of its own.
//
// Whoever gives it up leaves the thread to itself: what it works on must be its own.
//
// Threads    One thread at a time; it has one of its own.

#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "base/nvtx.h"

namespace passel::job {

template <typename T>
class DiskCall {
 public:
  /// Without a thread for it, `work` is done here.
  explicit DiskCall(std::function<T()> work)
      : task_(std::make_shared<std::packaged_task<T()>>(std::move(work))),
        result_(task_->get_future()) {
    try {
      std::thread([task = task_] {
        nvtx::NameThread("checkpoints");
        (*task)();
      }).detach();
    } catch (const std::system_error&) {
      (*task_)();
    }
  }

  /// True once it is done; waits for that no longer than `time`.
  bool Done(std::chrono::nanoseconds time = {}) const {
    return result_.wait_for(time) == std::future_status::ready;
  }
  /// REQUIRES: Done(), once.
  T Take() { return result_.get(); }

 private:
  std::shared_ptr<std::packaged_task<T()>> task_;
  std::future<T> result_;
};

}  // namespace passel::job

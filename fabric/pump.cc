#include "fabric/pump.h"

#include <utility>

#include "fabric/session.h"

namespace passel::fabric {
namespace {

constexpr std::chrono::milliseconds kPumpSlice{20};

}  // namespace

Pump::~Pump() {
  End();
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Pump::Begin(std::vector<Item> items) {
  End();
  const std::lock_guard lock(mutex_);
  items_ = std::move(items);
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  changed_.notify_all();
}

void Pump::End() {
  std::unique_lock lock(mutex_);
  items_.clear();
  ending_ = true;
  changed_.wait(lock, [this] { return !busy_; });
  ending_ = false;
}

void Pump::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return quit_ || !items_.empty(); });
    if (quit_) return;
    const std::vector<Item> items = std::exchange(items_, {});
    busy_ = true;
    for (const Item& item : items) {
      Status status = DeadlineExceeded("");
      while (!ending_ && status.code() == Code::kDeadlineExceeded) {
        lock.unlock();
        // What goes wrong is told to who awaits it.
        status = item.session->Await(item.call, Deadline::After(kPumpSlice));
        lock.lock();
      }
    }
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace passel::fabric

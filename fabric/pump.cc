#include "fabric/pump.h"

#include <algorithm>
#include <chrono>

#include "fabric/session.h"

namespace passel::fabric {
namespace {

constexpr std::chrono::milliseconds kPumpSlice{20};

}  // namespace

Pump::~Pump() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Pump::Begin(const std::deque<Item>& items) {
  const std::lock_guard lock(mutex_);
  items_ = items;
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  changed_.notify_all();
}

void Pump::Release(const Call* call) {
  std::unique_lock lock(mutex_);
  std::erase_if(items_, [call](const Item& item) { return item.call == call; });
  released_ = call;
  changed_.wait(lock, [this, call] { return current_ != call; });
  released_ = nullptr;
}

void Pump::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return quit_ || !items_.empty(); });
    if (quit_) return;
    const Item item = items_.front();
    items_.pop_front();
    current_ = item.call;
    Status status = DeadlineExceeded("");
    while (status.code() == Code::kDeadlineExceeded && released_ != current_ && !quit_) {
      lock.unlock();
      // What goes wrong is told to who awaits it.
      status = item.session->Await(item.call, Deadline::After(kPumpSlice));
      lock.lock();
    }
    current_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace passel::fabric

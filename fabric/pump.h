// pump.h - a thread that receives what a worker has asked for while it computes.
//
// Threads    Begin() and Release() by one.

#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace passel::fabric {

struct Call;
class Session;

class Pump {
 public:
  struct Item {
    Session* session;
    Call* call;
  };

  Pump() = default;
  ~Pump();
  Pump(const Pump&) = delete;
  Pump& operator=(const Pump&) = delete;

  /// Receives what is asked for by these, one after the other. Returns at once.
  void Begin(const std::deque<Item>& items);
  /// That call is not used any more. Takes up to 20 ms where it is not answered yet.
  void Release(const Call* call);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  const Call* current_ = nullptr;   // the thread awaits it
  const Call* released_ = nullptr;  // is to be used no more
  bool quit_ = false;
  std::thread thread_;  // from the first Begin() on
};

}  // namespace passel::fabric

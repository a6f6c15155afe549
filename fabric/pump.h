// pump.h - a thread that receives what a worker has asked for while it computes.
//
// Threads    Begin() and End() by one.

#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

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

  /// Returns at once. What was begun before ends.
  void Begin(std::vector<Item> items);
  /// No call is used any more. Takes up to 20 ms where one is not answered yet.
  void End();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Item> items_;
  bool busy_ = false, ending_ = false, quit_ = false;
  std::thread thread_;  // from the first Begin() on
};

}  // namespace passel::fabric

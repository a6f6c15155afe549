// failure_limit.h - how often somebody may fail: a few times at once, then so often a second.
//
// Thread safety: none; one thread at a time.

#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"

namespace passel::fabric {

class FailureLimit {
 public:
  /// Addresses that are remembered; of more than so many the one that failed longest ago goes.
  static constexpr std::size_t kMostAddresses = 1024;

  explicit FailureLimit(int per_second)
      : pause_ns_(1'000'000'000 / per_second), most_(per_second) {}

  bool MayTry(const std::string& address) const {
    const auto at = busy_until_.find(address);
    // Each failure takes a pause; `most_` of them may be ahead of the time.
    return at == busy_until_.end() || at->second - MonotonicNs() <= pause_ns_ * (most_ - 1);
  }

  void Failed(const std::string& address) {
    const std::int64_t now = MonotonicNs();
    std::int64_t& until = busy_until_[address];
    until = std::max(until, now) + pause_ns_;
    if (busy_until_.size() <= kMostAddresses) return;
    std::erase_if(busy_until_, [&](const auto& entry) { return entry.second <= now; });
    while (busy_until_.size() > kMostAddresses) {
      busy_until_.erase(std::ranges::min_element(busy_until_, {},
                                                 [](const auto& entry) { return entry.second; }));
    }
  }

  std::size_t size() const { return busy_until_.size(); }

 private:
  const std::int64_t pause_ns_;
  const int most_;
  std::map<std::string, std::int64_t> busy_until_;  // MonotonicNs()
};

}  // namespace passel::fabric

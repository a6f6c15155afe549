// fault_pipe.h - a pipe that loses, repeats and delays messages of both directions, and is cut, as
// its seed has it.

#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "fabric/pipe.h"

namespace passel::testing {

/// Of a thousand messages.
struct Faults {
  int drop = 0, repeat = 0, delay = 0, cut = 0;
  std::int64_t longest_delay_ns = 5'000'000;
};

/// As many as a test can bear.
inline constexpr Faults kBadPipes = {.drop = 20, .repeat = 40, .delay = 40, .cut = 4};

class FaultPipe final : public fabric::Pipe {
 public:
  FaultPipe(std::unique_ptr<fabric::Pipe> pipe, const Faults& faults, std::uint64_t seed)
      : pipe_(std::move(pipe)), faults_(faults), random_(seed) {}

  Status Send(std::span<const std::uint8_t> header, std::span<const float> bulk) override {
    const std::lock_guard lock(mutex_);
    PASSEL_RETURN_IF_ERROR(SendLate());
    switch (NextFate()) {
      case Fate::kCut:
        return Cut();
      case Fate::kDrop:
        return {};
      case Fate::kDelay:
        outgoing_.push_back(Keep(header, bulk));
        return {};
      case Fate::kRepeat:
        outgoing_.push_back(Keep(header, bulk));
        break;
      case Fate::kNone:
        break;
    }
    return pipe_->Send(header, bulk);
  }

  Result<fabric::Arrival> Receive(Deadline deadline) override {
    for (;;) {
      const std::int64_t now = MonotonicNs();
      std::int64_t until = deadline.at_ns();
      {
        const std::lock_guard lock(mutex_);
        if (cut_) return Unavailable("the connection was cut");
        PASSEL_RETURN_IF_ERROR(SendLate());
        for (const Kept& kept : outgoing_) until = std::min(until, kept.due_ns);
      }
      if (!incoming_.empty() && incoming_.front().due_ns <= now) {
        current_ = std::move(incoming_.front());
        incoming_.pop_front();
        read_ = 0;
        kept_ = true;
        return fabric::Arrival{current_.header, current_.bulk.size()};
      }
      if (!incoming_.empty()) until = std::min(until, incoming_.front().due_ns);
      kept_ = false;
      Result<fabric::Arrival> arrival = pipe_->Receive(Deadline::At(until));
      if (!arrival.ok()) {
        if (arrival.status().code() != Code::kDeadlineExceeded) return arrival;
        if (deadline.Expired()) return arrival;
        continue;
      }
      const std::lock_guard lock(mutex_);
      const Fate fate = NextFate();
      if (fate == Fate::kNone) return arrival;
      if (fate == Fate::kCut) return Cut();
      std::vector<float> bulk(arrival->bulk_floats);
      PASSEL_RETURN_IF_ERROR(pipe_->ReadBulk(bulk));
      if (fate == Fate::kDrop) continue;
      incoming_.push_back(Keep(arrival->header, bulk));
      if (fate == Fate::kDelay) continue;
      current_ = incoming_.back();
      read_ = 0;
      kept_ = true;
      return fabric::Arrival{current_.header, current_.bulk.size()};
    }
  }

  Result<std::size_t> ReadSome(std::span<float> into, Deadline deadline) override {
    if (!kept_) return pipe_->ReadSome(into, deadline);
    std::copy_n(current_.bulk.begin() + static_cast<std::ptrdiff_t>(read_), into.size(),
                into.begin());
    read_ += into.size();
    return into.size();
  }

  using Pipe::ReadBulk;
  Status ReadBulk(std::span<float> into, const std::function<bool()>& go_on) override {
    return kept_ ? Pipe::ReadBulk(into, go_on) : pipe_->ReadBulk(into, go_on);
  }

 private:
  enum class Fate { kNone, kDrop, kRepeat, kDelay, kCut };
  struct Kept {
    std::vector<std::uint8_t> header;
    std::vector<float> bulk;
    std::int64_t due_ns = 0;
  };

  Fate NextFate() {
    const auto x = static_cast<int>(random_.Below(1000));
    int below = faults_.drop;
    if (x < below) return Fate::kDrop;
    if (x < (below += faults_.repeat)) return Fate::kRepeat;
    if (x < (below += faults_.delay)) return Fate::kDelay;
    if (x < (below += faults_.cut)) return Fate::kCut;
    return Fate::kNone;
  }
  Kept Keep(std::span<const std::uint8_t> header, std::span<const float> bulk) {
    const auto delay = static_cast<std::int64_t>(
        random_.Below(static_cast<std::uint64_t>(faults_.longest_delay_ns)));
    return {{header.begin(), header.end()}, {bulk.begin(), bulk.end()}, MonotonicNs() + delay};
  }
  Status SendLate() {
    if (cut_) return Unavailable("the connection was cut");
    for (std::size_t i = 0; i < outgoing_.size();) {
      if (outgoing_[i].due_ns > MonotonicNs()) {
        ++i;
        continue;
      }
      const Kept late = std::move(outgoing_[i]);
      outgoing_.erase(outgoing_.begin() + static_cast<std::ptrdiff_t>(i));
      PASSEL_RETURN_IF_ERROR(pipe_->Send(late.header, late.bulk));
    }
    return {};
  }
  // The other end sees it when this pipe is given up.
  Status Cut() {
    cut_ = true;
    return Unavailable("the connection was cut");
  }

  const std::unique_ptr<fabric::Pipe> pipe_;
  const Faults faults_;
  std::mutex mutex_;  // of what both directions use
  Random random_;
  std::vector<Kept> outgoing_;
  bool cut_ = false;
  // Of the one that receives.
  std::deque<Kept> incoming_;
  Kept current_;
  std::size_t read_ = 0;
  bool kept_ = false;  // the last message is current_
};

}  // namespace passel::testing

// line.h - the line between one worker and its ps, which a test takes down and puts up again.

#pragma once

#include <atomic>
#include <memory>

#include "base/clock.h"
#include "fabric/pipe_over.h"
#include "fabric/wire.h"

namespace passel::testing {

struct Line {
  enum State {
    kUp,
    kDeaf,  ///< what the worker sends arrives, and no answer comes back
    kDown,  ///< connections end, and no other can be made
  };
  std::atomic<State> state{kUp};
  /// Goes deaf when the worker sends such a request.
  std::atomic<fabric::Kind> deaf_at{};
};

class LinePipe final : public fabric::PipeOver<> {
 public:
  LinePipe(std::unique_ptr<fabric::Pipe> pipe, Line& line)
      : PipeOver(std::move(pipe)), line_(line) {}

  Status Send(std::span<const std::uint8_t> header, std::span<const float> bulk) override {
    if (line_.state == Line::kDown) return Unavailable("the line is down");
    if (const auto sent = fabric::DecodeRequest(header); sent.ok() && sent->kind == line_.deaf_at) {
      line_.deaf_at = {};
      line_.state = Line::kDeaf;
    }
    return pipe_->Send(header, bulk);
  }
  Result<fabric::Arrival> Receive(Deadline deadline) override {
    for (;;) {
      if (line_.state == Line::kDown) return Unavailable("the line is down");
      Result<fabric::Arrival> arrival = pipe_->Receive(deadline.Sooner(kLook));
      if (arrival.ok() && line_.state == Line::kUp) return arrival;
      if (!arrival.ok() && arrival.status().code() != Code::kDeadlineExceeded) return arrival;
      if (deadline.Expired()) return DeadlineExceeded("nothing came");
    }
  }

 private:
  static constexpr std::chrono::milliseconds kLook{2};
  Line& line_;
};

}  // namespace passel::testing

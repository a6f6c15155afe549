// pipe_over.h - a pipe that is another one, but for what the class on top of it has otherwise.

#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "fabric/pipe.h"

namespace passel::fabric {

/// `Kind` is what it is used as, `Inner` what it is made of.
template <typename Kind = Pipe, typename Inner = Kind>
class PipeOver : public Kind {
 public:
  explicit PipeOver(std::unique_ptr<Inner> pipe) : pipe_(std::move(pipe)) {}

  std::chrono::nanoseconds stall_limit() const override { return pipe_->stall_limit(); }
  Status Send(std::span<const std::uint8_t> header, std::span<const float> bulk) override {
    return pipe_->Send(header, bulk);
  }
  Result<Arrival> Receive(Deadline deadline) override { return pipe_->Receive(deadline); }
  Result<std::size_t> ReadSome(std::span<float> into, Deadline deadline) override {
    return pipe_->ReadSome(into, deadline);
  }
  using Kind::ReadBulk;
  Status ReadBulk(std::span<float> into, const std::function<bool()>& go_on) override {
    return pipe_->ReadBulk(into, go_on);
  }

 protected:
  std::unique_ptr<Inner> pipe_;
};

}  // namespace passel::fabric

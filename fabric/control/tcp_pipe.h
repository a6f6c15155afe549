// tcp_pipe.h - messages between a worker and a ps over one sealed TCP connection.
//
// A message is a frame {header bytes: 4, floats of the bulk: 8, header}, and frames with the bulk,
// floats as they lie in memory. Both ends are little-endian machines with IEEE floats.
//
// A frame of 16 KiB may take as long as the stall limit, so that a network of less than 3.3 kB/s
// counts as one that stands still.

#pragma once

#include <memory>

#include "fabric/control/channel.h"
#include "fabric/pipe.h"

namespace passel::fabric {

class TcpPipe final : public Pipe {
 public:
  explicit TcpPipe(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}
  ~TcpPipe() override;

  std::chrono::nanoseconds stall_limit() const override { return channel_->stall_limit(); }
  Status Send(std::span<const std::uint8_t> header, std::span<const float> bulk) override;
  Result<Arrival> Receive(Deadline deadline) override;
  Result<std::size_t> ReadSome(std::span<float> into, Deadline deadline) override;

 private:
  Result<bool> NextBulk(Deadline deadline);

  const std::shared_ptr<Channel> channel_;
  std::size_t unread_ = 0;              // floats of the bulk of the last message
  std::span<const std::uint8_t> rest_;  // of the frame that came last
};

}  // namespace passel::fabric

// linked_pipe.h - a pipe of a bulk network, whose ends have met over a sealed connection. That
// stays: it ends when the other end does, and the pipe with it.
//
// Threads    As for Pipe. It has one of its own.

#pragma once

#include <memory>
#include <thread>

#include "fabric/bulk_network.h"
#include "fabric/control/channel.h"
#include "fabric/control/task_facts.h"

namespace passel::fabric {

/// The end that asks: opens a pipe at the address that `fd` is connected from, and says in `mine`
/// where it is and by which tags.
Result<std::unique_ptr<BulkPipe>> OfferBulkPipe(BulkNetwork& network, int fd, TaskFacts* mine);
/// The end that answers: the same, and joins the pipe that `theirs` tells of. Errors: also
/// kInvalidArgument for what cannot be joined.
Result<std::unique_ptr<BulkPipe>> AnswerBulkPipe(BulkNetwork& network, int fd,
                                                 const TaskFacts& theirs, TaskFacts* mine);
/// The end that asked, when it has its answer.
Status JoinAnswered(BulkPipe& pipe, const TaskFacts& mine, const TaskFacts& theirs);

class LinkedPipe final : public Pipe {
 public:
  /// REQUIRES: the pipe has joined.
  LinkedPipe(std::unique_ptr<BulkPipe> pipe, std::shared_ptr<Channel> link);
  ~LinkedPipe() override;

  std::chrono::nanoseconds stall_limit() const override { return pipe_->stall_limit(); }
  Status Send(std::span<const std::uint8_t> header, std::span<const float> bulk) override {
    return pipe_->Send(header, bulk);
  }
  Result<Arrival> Receive(Deadline deadline) override { return pipe_->Receive(deadline); }
  Result<std::size_t> ReadSome(std::span<float> into, Deadline deadline) override {
    return pipe_->ReadSome(into, deadline);
  }
  using Pipe::ReadBulk;
  Status ReadBulk(std::span<float> into, const std::function<bool()>& go_on) override {
    return pipe_->ReadBulk(into, go_on);
  }

 private:
  const std::unique_ptr<BulkPipe> pipe_;
  const std::shared_ptr<Channel> link_;
  std::thread watch_;
};

}  // namespace passel::fabric

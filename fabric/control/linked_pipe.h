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
#include "fabric/pipe_over.h"

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

class LinkedPipe final : public PipeOver<Pipe, BulkPipe> {
 public:
  /// REQUIRES: the pipe has joined.
  LinkedPipe(std::unique_ptr<BulkPipe> pipe, std::shared_ptr<Channel> link);
  ~LinkedPipe() override;

 private:
  const std::shared_ptr<Channel> link_;
  std::thread watch_;
};

}  // namespace passel::fabric

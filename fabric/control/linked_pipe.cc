#include "fabric/control/linked_pipe.h"

#include <utility>

#include "base/tcp_socket.h"

namespace passel::fabric {
namespace {

// The link ends it much sooner.
constexpr std::chrono::hours kLook{1};

Result<std::unique_ptr<BulkPipe>> OpenAt(BulkNetwork& network, int fd, TaskFacts* mine) {
  PASSEL_ASSIGN_OR_RETURN(const TcpAddress local, LocalAddress(fd));
  PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<BulkPipe> pipe, network.OpenPipe(local.Numbers()));
  mine->address = pipe->local_address();
  return pipe;
}

Result<PipeTags> TagsOf(const TaskFacts& facts) {
  const std::vector<std::uint64_t>& tags = facts.tags;
  if (tags.size() != 2 || (tags[0] | 1) == (tags[1] | 1)) {
    return InvalidArgument("a pipe is told by two tags");
  }
  return PipeTags{tags[0], tags[1]};
}

}  // namespace

Result<std::unique_ptr<BulkPipe>> OfferBulkPipe(BulkNetwork& network, int fd, TaskFacts* mine) {
  PASSEL_ASSIGN_OR_RETURN(const PipeTags tags, PipeTags::Random());
  mine->tags = {tags.sends, tags.receives};
  return OpenAt(network, fd, mine);
}

Result<std::unique_ptr<BulkPipe>> AnswerBulkPipe(BulkNetwork& network, int fd,
                                                 const TaskFacts& theirs, TaskFacts* mine) {
  PASSEL_ASSIGN_OR_RETURN(const PipeTags tags, TagsOf(theirs));
  PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<BulkPipe> pipe, OpenAt(network, fd, mine));
  PASSEL_RETURN_IF_ERROR(pipe->Join(theirs.address, tags.OfTheOtherEnd()));
  return pipe;
}

Status JoinAnswered(BulkPipe& pipe, const TaskFacts& mine, const TaskFacts& theirs) {
  PASSEL_ASSIGN_OR_RETURN(const PipeTags tags, TagsOf(mine));
  return pipe.Join(theirs.address, tags);
}

LinkedPipe::LinkedPipe(std::unique_ptr<BulkPipe> pipe, std::shared_ptr<Channel> link)
    : PipeOver(std::move(pipe)), link_(std::move(link)) {
  watch_ = std::thread([this] {
    Status end;
    while (end.ok() || end.code() == Code::kDeadlineExceeded) {
      const Result<Frame> frame = link_->Receive(Deadline::After(kLook));
      // Nothing is said on it.
      end = frame.ok() ? Unavailable("the other end says what it may not") : frame.status();
    }
    pipe_->Close(end);
  });
}

LinkedPipe::~LinkedPipe() {
  link_->Shut(Unavailable("the pipe was given up"));
  watch_.join();
}

}  // namespace passel::fabric

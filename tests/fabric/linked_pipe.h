// linked_pipe.h - a pipe over libfabric whose ends meet over a socket, and learn from it that the
// other end is gone.

#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "fabric/libfabric/fabric_pipe.h"
#include "fabric/socket_pipe.h"

namespace passel::testing {

inline const bool kProvidersAreSet = (fabric::SetProviderDefaults(), true);

class LinkedPipe final : public fabric::Pipe {
 public:
  LinkedPipe(FileDescriptor socket, std::unique_ptr<SocketPipe> link,
             std::unique_ptr<fabric::FabricPipe> pipe)
      : socket_(std::move(socket)), link_(std::move(link)), pipe_(std::move(pipe)) {
    watch_ = std::thread([this] {
      while (link_->Receive(Deadline::After(std::chrono::hours(1))).status().code() !=
             Code::kUnavailable) {
      }
      pipe_->Close(Unavailable("the other end is gone"));
    });
  }
  ~LinkedPipe() override {
    ::shutdown(socket_.get(), SHUT_RDWR);
    watch_.join();
  }

  std::chrono::nanoseconds stall_limit() const override { return pipe_->stall_limit(); }
  Status Send(std::span<const std::uint8_t> header, std::span<const float> bulk) override {
    return pipe_->Send(header, bulk);
  }
  Result<fabric::Arrival> Receive(Deadline deadline) override { return pipe_->Receive(deadline); }
  Result<std::size_t> ReadSome(std::span<float> into, Deadline deadline) override {
    return pipe_->ReadSome(into, deadline);
  }
  using Pipe::ReadBulk;
  Status ReadBulk(std::span<float> into, const std::function<bool()>& go_on) override {
    return pipe_->ReadBulk(into, go_on);
  }

 private:
  const FileDescriptor socket_;  // the link's
  const std::unique_ptr<SocketPipe> link_;
  const std::unique_ptr<fabric::FabricPipe> pipe_;
  std::thread watch_;
};

/// One for each provider in this process.
inline Result<std::shared_ptr<fabric::Network>> NetworkOf(const std::string& provider) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<fabric::Network>> all;
  const std::lock_guard lock(mutex);
  std::shared_ptr<fabric::Network>& network = all[provider];
  if (network == nullptr) {
    fabric::NetworkOptions options;
    options.provider = provider;
    PASSEL_ASSIGN_OR_RETURN(network, fabric::Network::Open(options));
  }
  return network;
}

/// The worker's end asks and says its address; the ps' end says tags and its own.
inline Result<std::unique_ptr<fabric::Pipe>> MeetOver(FileDescriptor socket,
                                                      const std::string& provider, bool asks) {
  FileDescriptor second(::dup(socket.get()));
  auto link = std::make_unique<SocketPipe>(std::move(socket));
  const Deadline deadline = Deadline::After(std::chrono::seconds(10));
  PASSEL_ASSIGN_OR_RETURN(const std::shared_ptr<fabric::Network> network, NetworkOf(provider));
  PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<fabric::FabricPipe> pipe,
                          fabric::FabricPipe::Open(network));
  if (asks) PASSEL_RETURN_IF_ERROR(link->Send(pipe->local_address(), {}));
  PASSEL_ASSIGN_OR_RETURN(const fabric::Arrival arrival, link->Receive(deadline));
  const std::span<const std::uint8_t> said = arrival.header;
  fabric::PipeTags tags;
  if (asks) {
    if (said.size() < sizeof tags) return Unavailable("an answer that is too short");
    std::memcpy(&tags, said.data(), sizeof tags);
    PASSEL_RETURN_IF_ERROR(pipe->Join(said.subspan(sizeof tags), tags.OfTheOtherEnd()));
  } else {
    PASSEL_ASSIGN_OR_RETURN(tags, fabric::PipeTags::Random());
    PASSEL_RETURN_IF_ERROR(pipe->Join(said, tags));
    std::vector<std::uint8_t> answer(sizeof tags);
    std::memcpy(answer.data(), &tags, sizeof tags);
    answer.insert(answer.end(), pipe->local_address().begin(), pipe->local_address().end());
    PASSEL_RETURN_IF_ERROR(link->Send(answer, {}));
  }
  return std::unique_ptr<fabric::Pipe>(
      std::make_unique<LinkedPipe>(std::move(second), std::move(link), std::move(pipe)));
}

}  // namespace passel::testing

// ps_thread.h - a ps that serves in a thread of the test, and raw connections to it.

#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "base/unix_socket.h"
#include "cluster/endpoint.h"
#include "cluster/job_token.h"
#include "shm/layout.h"
#include "shm/ps_host.h"
#include "shm/rendezvous_client.h"

namespace passel::shm::testing {

inline constexpr std::uint64_t kCluster = 0x1234'5678'9abc'def0;
inline constexpr int kWorkers = 2;

inline Deadline Soon() { return Deadline::After(std::chrono::seconds(10)); }

class PsThread {
 public:
  explicit PsThread(bool supervised = false)
      : job_(MakeJobId()), token_(JobToken::Generate()), stop_(::eventfd(0, EFD_CLOEXEC)) {
    PsHostOptions options;
    options.me = Me(Role::kPs);
    options.num_workers = kWorkers;
    options.supervised = supervised;
    Result<FileDescriptor> listening = Listen(job_, Role::kPs, 0);
    EXPECT_TRUE(listening.ok()) << listening.status().message();
    host_ = std::make_unique<PsHost>(options, token_, std::move(*listening), std::nullopt);
    thread_ = std::thread([this] { (void)host_->Serve(stop_.get()); });
  }
  ~PsThread() {
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(stop_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
    thread_.join();
  }

  const std::string& job() const { return job_; }
  const JobToken& token() const { return token_; }

  Introduction Me(Role role = Role::kWorker, int index = 0) const {
    return {job_, role, index, kCluster};
  }
  Result<RendezvousClient> Connect(Role role = Role::kWorker, int index = 0) const {
    return RendezvousClient::Connect(Me(role, index), Role::kPs, 0, &token_, Soon());
  }
  /// An honest worker gets in and gets an answer.
  ::testing::AssertionResult Serves() const {
    Result<RendezvousClient> client = Connect(Role::kWorker, 1);
    if (!client.ok()) return ::testing::AssertionFailure() << client.status().message();
    const Result<std::string> status = client->GetStatus(Soon());
    if (!status.ok()) return ::testing::AssertionFailure() << status.status().message();
    return ::testing::AssertionSuccess();
  }

 private:
  static std::string MakeJobId() {
    static std::atomic<int> count{0};
    return fmt::format("rendezvous-{}-{}", ::getpid(), ++count);
  }
  const std::string job_;
  const JobToken token_;
  FileDescriptor stop_;
  std::unique_ptr<PsHost> host_;
  std::thread thread_;
};

/// A connection that says what the test wants.
class RawConnection {
 public:
  explicit RawConnection(const PsThread& ps) {
    Result<FileDescriptor> socket = ConnectAbstract(EndpointName(ps.job(), Role::kPs, 0), Soon());
    EXPECT_TRUE(socket.ok()) << socket.status().message();
    if (socket.ok()) socket_ = std::move(*socket);
  }

  int fd() const { return socket_.get(); }
  bool Send(const std::string& text, std::span<const int> fds = {}) {
    return SendMessage(fd(), {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, fds,
                       Soon())
        .ok();
  }
  /// The next message; nullopt when the server has closed the connection.
  std::optional<nlohmann::json> Receive() {
    Result<Message> message = ReceiveMessage(fd(), Soon());
    if (!message.ok()) {
      EXPECT_EQ(message.status().code(), Code::kUnavailable) << message.status().message();
      return std::nullopt;
    }
    return nlohmann::json::parse(std::string(message->bytes.begin(), message->bytes.end()));
  }
  /// What a refusal looks like: an error, then nothing more. Its code.
  std::optional<Code> ReceiveRefusal() {
    const std::optional<nlohmann::json> answer = Receive();
    if (!answer) return Code::kUnavailable;
    if (!answer->contains("error")) return std::nullopt;
    EXPECT_FALSE(Receive().has_value()) << "the connection is still open";
    return static_cast<Code>((*answer)["error"].get<int>());
  }

 private:
  FileDescriptor socket_;
};

/// An honest hello; change what the test is about.
inline nlohmann::json Hello(Role role = Role::kWorker, int index = 0) {
  const ProcessIdentity self = SelfIdentity();
  return {{"hello", kProtocolVersion},
          {"role", RoleName(role)},
          {"index", index},
          {"cluster", kCluster},
          {"structure", StructureHash()},
          {"layout", kLayoutVersion},
          {"pid", self.pid},
          {"start_time", self.start_time},
          {"pid_namespace", self.pid_namespace},
          {"nonce", MakeNonce()}};
}

inline std::size_t OpenDescriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

}  // namespace passel::shm::testing

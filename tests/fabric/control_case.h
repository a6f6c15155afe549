// control_case.h - a ps's door and those who come to it, in one process.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fabric/control/control_connection.h"
#include "fabric/control/control_server.h"
#include "support/tcp_fault_proxy.h"

namespace passel::testing {

inline constexpr auto kSoon = std::chrono::seconds(2);   // that the end of a connection takes
inline constexpr auto kLate = std::chrono::seconds(20);  // never waited for in a good run

/// Remembers what it is told.
class Doorman final : public fabric::ControlHandler {
 public:
  Status Admit(std::uint64_t life, const fabric::TaskFacts& peer,
               fabric::TaskFacts* mine) override {
    const std::lock_guard lock(mutex_);
    if (!refuse_.ok()) return refuse_;
    in_[life] = peer;
    mine->tags = {life, 7};
    mine->address = {1, 2, 3};
    changed_.notify_all();
    return {};
  }
  void Serve(std::uint64_t, const fabric::TaskFacts&, std::unique_ptr<fabric::Pipe> pipe) override {
    const std::lock_guard lock(mutex_);
    pipes_.push_back(std::move(pipe));
    changed_.notify_all();
  }
  void Gone(std::uint64_t life, const fabric::TaskFacts& peer, const Status& why) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(in_.erase(life), 1u) << peer.Name();
    gone_.push_back(why.message());
    changed_.notify_all();
  }

  void RefuseWith(const Status& why) {
    const std::lock_guard lock(mutex_);
    refuse_ = why;
  }
  std::size_t present() const {
    const std::lock_guard lock(mutex_);
    return in_.size();
  }
  /// Why the n-th that is gone is gone; "" if none is within `limit`.
  std::string AwaitGone(std::size_t n, std::chrono::nanoseconds limit = kLate) const {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return gone_.size() >= n; });
    return gone_.size() >= n ? gone_[n - 1] : "";
  }
  std::unique_ptr<fabric::Pipe> AwaitPipe() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLate, [&] { return !pipes_.empty(); });
    if (pipes_.empty()) return nullptr;
    std::unique_ptr<fabric::Pipe> pipe = std::move(pipes_.front());
    pipes_.erase(pipes_.begin());
    return pipe;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Status refuse_;
  std::map<std::uint64_t, fabric::TaskFacts> in_;
  std::vector<std::string> gone_;
  std::vector<std::unique_ptr<fabric::Pipe>> pipes_;
};

inline fabric::TaskFacts FactsOf(Role role, int index) {
  fabric::TaskFacts facts;
  facts.job_id = "job";
  facts.role = role;
  facts.index = index;
  facts.wire = 2;
  facts.cluster = 99;
  return facts;
}

class ControlCase : public ::testing::Test {
 protected:
  /// `change` what is wanted otherwise.
  void Start(const std::function<void(fabric::ControlServerOptions&)>& change = {}) {
    fabric::ControlServerOptions options;
    options.key.token = token_;
    options.me = FactsOf(Role::kPs, 0);
    if (change) change(options);
    auto server = fabric::ControlServer::Start(options, doorman_);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = std::move(*server);
  }
  fabric::ControlOptions OptionsTo(const TcpAddress& address, int worker = 0) const {
    fabric::ControlOptions options;
    options.address = {address.family() == AF_INET6 ? "::1" : "127.0.0.1", address.port()};
    options.key.token = token_;
    options.me = FactsOf(Role::kWorker, worker);
    return options;
  }
  fabric::ControlOptions Options(int worker = 0) const {
    return OptionsTo(server_->addresses()[0], worker);
  }
  static Result<std::unique_ptr<fabric::ControlConnection>> Open(
      const fabric::ControlOptions& options) {
    return fabric::ControlConnection::Open(options, Deadline::After(kLate));
  }
  /// A connection that has said nothing.
  FileDescriptor Raw() const {
    Result<FileDescriptor> socket = ConnectTcp(server_->addresses()[0], Deadline::After(kLate));
    EXPECT_TRUE(socket.ok()) << socket.status().ToString();
    return socket.ok() ? std::move(*socket) : FileDescriptor();
  }
  /// What the server says until it closes.
  static std::vector<std::uint8_t> ReadToEnd(int fd) {
    std::vector<std::uint8_t> all, part(4096);
    const Deadline deadline = Deadline::After(kLate);
    for (;;) {
      const Result<std::size_t> came = ReceiveNow(fd, part);
      if (!came.ok()) return all;
      all.insert(all.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(*came));
      if (*came == 0 && !AwaitReady(fd, POLLIN, deadline)) {
        ADD_FAILURE() << "the server does not close";
        return all;
      }
    }
  }

  const JobToken token_ = JobToken::Generate();
  Doorman doorman_;
  std::unique_ptr<fabric::ControlServer> server_;
};

}  // namespace passel::testing

// remote_ps.h - one ps in a process of its own that shares no memory with the stores of the test,
// and a store host made of such.

#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_file.h"
#include "base/subprocess.h"
#include "base/unix_socket.h"
#include "conformance/store_suite.h"
#include "fabric/carrier.h"
#include "fabric/client.h"
#include "fabric/fault_pipe.h"
#include "fabric/line.h"
#include "fabric/socket_pipe.h"
#include "shm/arena.h"
#include "support/hosts_watch.h"

namespace passel::testing {

class RemotePs {
 public:
  /// `failpoint` as in base/failpoint.h, for the first process.
  RemotePs(const StorePlan& plan, int shard, const std::string& failpoint = "",
           std::chrono::milliseconds grace = std::chrono::seconds(5),
           std::shared_ptr<const Carrier> carrier = CarrierOfTests())
      : plan_(ToJson(plan)), shard_(shard), grace_(grace), carrier_(std::move(carrier)) {
    Start(failpoint);
  }

  /// Another process on the same arena, which the stores of this one never map.
  void Start(const std::string& failpoint = "") {
    int ends[2];
    PASSEL_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "sockets");
    const FileDescriptor theirs(ends[1]);
    SpawnOptions options;
    options.executable = PASSEL_FABRIC_PS;
    options.name = "fabric_ps";
    options.arguments = {plan_, std::to_string(shard_), std::to_string(grace_.count()),
                         std::to_string(theirs.get()), std::to_string(arena_.get())};
    if (carrier_ != nullptr) {
      options.arguments.insert(options.arguments.end(), carrier_->arguments.begin(),
                               carrier_->arguments.end());
    }
    options.inherited_fds = {theirs.get()};
    if (arena_.valid()) options.inherited_fds.push_back(arena_.get());
    if (!failpoint.empty()) options.environment = {"PASSEL_FAILPOINT=" + failpoint};
    Result<Subprocess> spawned = Subprocess::Spawn(options);
    PASSEL_CHECK(spawned.ok(), spawned.status().message().c_str());
    const std::lock_guard lock(mutex_);
    control_.Reset(ends[0]);
    process_ = std::make_unique<Subprocess>(std::move(*spawned));
    Result<Message> ready = ReceiveMessage(control_.get(), Deadline::After(kLong));
    PASSEL_CHECK(ready.ok() && ready->fds.size() == 1, "the ps says that it is there");
    arena_ = std::move(ready->fds[0]);
    told_ = ready->bytes;
  }

  void Kill() {
    process_->Signal(SIGKILL);
    AwaitEnd();
  }
  /// It stops serving, and ends as it should.
  void EndCleanly() {
    {
      const std::lock_guard lock(mutex_);
      ::shutdown(control_.get(), SHUT_RDWR);
    }
    AwaitEnd();
  }
  /// The next process begins with another one.
  void LoseArena() { arena_.Reset(); }
  void AwaitEnd() { PASSEL_CHECK(process_->Reap(Deadline::After(kLong)).ok(), "the ps ends"); }

  Result<std::unique_ptr<fabric::Pipe>> Connect(int worker, Deadline deadline) {
    if (carrier_ != nullptr) {
      std::unique_lock lock(mutex_);
      const std::vector<std::uint8_t> told = told_;
      lock.unlock();
      return carrier_->connect(shard_, worker, told, deadline);
    }
    int ends[2];
    PASSEL_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "sockets");
    FileDescriptor ours(ends[0]);
    {
      const FileDescriptor theirs(ends[1]);
      const std::lock_guard lock(mutex_);
      const std::uint8_t word = 0;
      const int sent = theirs.get();
      PASSEL_RETURN_IF_ERROR(
          SendMessage(control_.get(), {&word, 1}, {&sent, 1}, Deadline::After(kBound)));
    }
    return std::unique_ptr<fabric::Pipe>(std::make_unique<SocketPipe>(std::move(ours)));
  }

  /// For who looks into its memory.
  FileDescriptor arena() const { return FileDescriptor(::fcntl(arena_.get(), F_DUPFD_CLOEXEC, 0)); }
  pid_t pid() const { return process_->pid(); }

 private:
  const std::string plan_;
  const int shard_;
  const std::chrono::milliseconds grace_;
  const std::shared_ptr<const Carrier> carrier_;
  std::mutex mutex_;
  std::vector<std::uint8_t> told_;
  FileDescriptor arena_;
  FileDescriptor control_;
  std::unique_ptr<Subprocess> process_;
};

class RemoteHost : public StoreHost {
 public:
  explicit RemoteHost(const StorePlan& plan, const Faults& faults = {}, std::uint64_t seed = 0,
                      const std::string& failpoint = "",
                      std::chrono::milliseconds grace = std::chrono::seconds(5),
                      const std::shared_ptr<const Carrier>& carrier = CarrierOfTests())
      : plan_(plan), faults_(faults), seed_(seed) {
    for (int s = 0; s < plan.variables.shards(); ++s) {
      ps_.push_back(std::make_unique<RemotePs>(plan, s, s == 0 ? failpoint : "", grace, carrier));
    }
  }

  Result<std::unique_ptr<ParameterStore>> Open(int worker, const WaitOptions& options) override {
    return Open(worker, options, nullptr);
  }
  Result<std::unique_ptr<ParameterStore>> Open(int worker, const WaitOptions& engine,
                                               std::function<fabric::MessageCount()>* count) {
    fabric::ClientOptions options;
    std::vector<fabric::Connector> connectors;
    for (const auto& ps : ps_) {
      const auto shard = static_cast<int>(connectors.size());
      if (shares && shares(worker, shard)) {
        options.here.memory[shard] = Memory()[connectors.size()];
        options.here.who = SelfIdentity();
      }
      connectors.push_back([this, &ps, worker, &line = LineOf(worker)](
                               Deadline deadline) -> Result<std::unique_ptr<fabric::Pipe>> {
        if (line.state == Line::kDown) return Unavailable("the line is down");
        PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<fabric::Pipe> pipe, ps->Connect(worker, deadline));
        pipe = std::make_unique<LinePipe>(std::move(pipe), line);
        return std::unique_ptr<fabric::Pipe>(std::make_unique<FaultPipe>(
            std::move(pipe), faults_, StreamSeed(seed_, connections_.fetch_add(1))));
      });
    }
    options.waits = engine;
    options.answer_limit = answer_limit;
    options.prefetch = prefetch;
    if (faults_.drop > 0) {  // what is lost is missed soon
      options.session.first_pause = std::chrono::milliseconds(3);
      options.session.longest_pause = std::chrono::milliseconds(50);
    }
    return fabric::OpenRemoteStore(plan_, worker, std::move(connectors), options, count);
  }
  /// Of the ps, for the test alone: stores use this mapping only where `shares` says so.
  std::vector<ShardMemory> Memory() override {
    const std::lock_guard lock(mutex_);
    if (looked_into_.empty()) {
      for (const auto& ps : ps_) {
        FileDescriptor memory_file = ps->arena();
        LooksInto(memory_file.get());
        Result<shm::Arena> arena = shm::Arena::Adopt(std::move(memory_file));
        PASSEL_CHECK(arena.ok(), arena.status().message().c_str());
        looked_into_.push_back(std::make_unique<shm::Arena>(std::move(*arena)));
      }
    }
    std::vector<ShardMemory> memory;
    for (const auto& arena : looked_into_) memory.push_back(arena->memory());
    return memory;
  }
  bool InPlace() const override { return false; }
  /// ClientOptions::prefetch of who is opened from now on.
  bool prefetch = false;
  /// Whether that worker shares the memory of that ps. None: all by messages.
  std::function<bool(int worker, int shard)> shares;
  /// Of that worker to all its ps.
  Line& LineOf(int worker) {
    const std::lock_guard lock(mutex_);
    return lines_[worker];
  }
  /// ClientOptions::answer_limit of who is opened from now on.
  std::chrono::milliseconds answer_limit = std::chrono::seconds(10);

  RemotePs& ps(int shard) { return *ps_[static_cast<std::size_t>(shard)]; }

 private:
  const StorePlan plan_;
  const Faults faults_;
  const std::uint64_t seed_;
  std::atomic<std::uint64_t> connections_{0};
  std::mutex mutex_;
  std::map<int, Line> lines_;
  std::vector<std::unique_ptr<RemotePs>> ps_;
  std::vector<std::unique_ptr<shm::Arena>> looked_into_;
};

}  // namespace passel::testing

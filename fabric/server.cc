#include "fabric/server.h"

#include <algorithm>

#include "fabric/proxy.h"
#include "fabric/wire.h"
#include "store/membership.h"

namespace passel::fabric {
namespace {

constexpr std::chrono::seconds kHelloLimit{10};
constexpr std::chrono::milliseconds kLookForStop{50};

}  // namespace

Server::Server(ServedShard served) : served_(std::move(served)) {
  const ShardMemory& memory = served_.memory;
  for (int worker = 0; worker < memory.num_workers; ++worker) {
    const TaskState state = StateOf(memory, worker);
    const ProcessIdentity who = LoadIdentity(memory.tasks[worker], state.epoch);
    const bool was_served = state.phase == Phase::kRunning && who.pid > 0 && who.pid_namespace == 0;
    former_.push_back(was_served ? state.epoch : 0);
  }
  former_watch_ = std::thread([this] { GiveUpFormerWorkers(); });
}

void Server::GiveUpFormerWorkers() {
  std::unique_lock lock(mutex_);
  stopped_.wait_for(lock, served_.options.grace, [&] { return stopping_; });
  for (std::size_t worker = 0; worker < former_.size(); ++worker) {
    if (former_[worker] == 0) continue;
    MarkDead(served_.memory, static_cast<int>(worker), former_[worker]);
  }
}

Server::~Server() { Stop(); }

void Server::Serve(std::unique_ptr<Pipe> pipe) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (!it->over) {
      ++it;
      continue;
    }
    it->thread.join();
    it = connections_.erase(it);
  }
  Connection& connection = connections_.emplace_back();
  connection.thread = std::thread([this, &connection, owned = std::move(pipe)]() mutable {
    Run(std::move(owned));
    const std::lock_guard done(mutex_);
    connection.over = true;
  });
}

void Server::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stopped_.notify_all();
    for (const auto& proxy : proxies_) proxy->End();
  }
  if (former_watch_.joinable()) former_watch_.join();
  // Nobody adds to the list any more.
  for (Connection& connection : connections_) {
    if (connection.thread.joinable()) connection.thread.join();
  }
}

void Server::Run(std::unique_ptr<Pipe> pipe) {
  const std::shared_ptr<Proxy> proxy = Admit(pipe);
  if (proxy == nullptr) return;
  proxy->Run();
  const std::lock_guard lock(mutex_);
  std::erase(proxies_, proxy);
}

// A new proxy for the worker at the other end; null if it has one, or may have none.
std::shared_ptr<Proxy> Server::Admit(std::unique_ptr<Pipe>& pipe) {
  const Deadline deadline = Deadline::After(kHelloLimit);
  Result<Request> hello = Unavailable("nobody said hello");
  while (!hello.ok() || hello->kind != Kind::kHello) {
    const Result<Arrival> arrival = pipe->Receive(deadline.Sooner(kLookForStop));
    const std::lock_guard lock(mutex_);
    if (stopping_ || deadline.Expired()) return nullptr;
    if (arrival.ok()) {
      hello = DecodeRequest(arrival->header);
    } else if (arrival.status().code() != Code::kDeadlineExceeded) {
      return nullptr;
    }
  }
  const std::lock_guard admission(admission_);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& proxy : proxies_) {
      if (proxy->session() == hello->session && proxy->Attach(pipe)) return nullptr;
      // Its former life will not come back.
      if (proxy->worker() == hello->hello.worker && proxy->Waits()) proxy->End();
    }
  }
  const auto worker = static_cast<std::size_t>(hello->hello.worker);
  const std::uint32_t former = worker < former_.size() ? former_[worker] : 0;
  Result<std::shared_ptr<Proxy>> proxy = Proxy::Make(served_, *hello, former);
  if (!proxy.ok()) {
    Answer refusal;
    refusal.to = Kind::kHello;
    refusal.session = hello->session;
    refusal.status = proxy.status();
    (void)pipe->Send(Encode(refusal), {}, Deadline::After(kMessageLimit));
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  for (const auto& other : proxies_) {  // of a life that is over
    if (other->worker() == (*proxy)->worker()) other->End();
  }
  (void)(*proxy)->Attach(pipe);
  if (stopping_) (*proxy)->End();
  proxies_.push_back(*proxy);
  return *proxy;
}

}  // namespace passel::fabric

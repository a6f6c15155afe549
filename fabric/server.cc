#include "fabric/server.h"

#include <fmt/core.h>

#include <algorithm>

#include "fabric/proxy.h"
#include "fabric/wire.h"
#include "store/membership.h"

namespace passel::fabric {
namespace {

constexpr std::chrono::milliseconds kLookForStop{50};
// A connection that has ended is seen to have ended within so long, on a busy machine too.
constexpr std::chrono::milliseconds kEndIsSeen{500};
constexpr std::chrono::milliseconds kLookForEnd{2};

}  // namespace

Server::Server(ServedShard served) : served_(std::move(served)) {
  const ShardMemory& memory = served_.memory;
  for (int worker = 0; worker < memory.num_workers; ++worker) {
    const TaskState state = StateOf(memory, worker);
    const bool was_served =
        state.phase == Phase::kRunning && IsRepresented(memory, worker, state.epoch);
    former_.push_back(was_served ? state.epoch : 0);
  }
  former_watch_ = std::thread([this] { GiveUpFormerWorkers(); });
}

void Server::GiveUpFormerWorkers() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, served_.options.grace, [&] { return stopping_; });
  }
  const std::lock_guard admission(admission_);
  for (std::size_t i = 0; i < former_.size(); ++i) {
    const int worker = static_cast<int>(i);
    if (former_[i] != 0) MarkDead(served_.memory, worker, former_[i]);
    // A former server had ended its life for its next one, which did not come.
    const TaskState state = StateOf(served_.memory, worker);
    if (state.phase == Phase::kExpected && state.epoch != 0)
      GiveUpExpecting(served_.memory, worker);
  }
}

Server::~Server() { Stop(); }

void Server::Serve(std::unique_ptr<Pipe> pipe) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  int silent = 0;
  for (auto it = connections_.begin(); it != connections_.end();) {
    silent += it->silent;
    if (!it->over) {
      ++it;
      continue;
    }
    it->thread.join();
    it = connections_.erase(it);
  }
  if (silent >= served_.options.most_silent) return;
  Connection& connection = connections_.emplace_back();
  connection.thread = std::thread([this, &connection, owned = std::move(pipe)]() mutable {
    Run(connection, std::move(owned));
    const std::lock_guard done(mutex_);
    connection.silent = false;
    connection.over = true;
  });
}

void Server::ConnectionEnded(int worker) {
  const std::lock_guard lock(mutex_);
  for (const auto& proxy : proxies_) {
    if (proxy->worker() == worker) proxy->Hurry(true);
  }
}

void Server::ConnectionBack(int worker) {
  const std::lock_guard lock(mutex_);
  for (const auto& proxy : proxies_) {
    if (proxy->worker() == worker) proxy->Hurry(false);
  }
}

void Server::Left(int worker) {
  const std::lock_guard lock(mutex_);
  for (const auto& proxy : proxies_) {
    if (proxy->worker() == worker) proxy->Left();
  }
}

void Server::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    for (const auto& proxy : proxies_) proxy->Finish();
  }
  if (former_watch_.joinable()) former_watch_.join();
  // Nobody adds to the list any more.
  for (Connection& connection : connections_) {
    if (connection.thread.joinable()) connection.thread.join();
  }
}

void Server::Run(Connection& connection, std::unique_ptr<Pipe> pipe) {
  const std::optional<Request> hello = AwaitHello(*pipe);
  if (!hello) return;
  AwaitEndOfFormerLife(*hello);
  const std::shared_ptr<Proxy> proxy = Admit(*hello, pipe);
  std::unique_lock lock(mutex_);
  connection.silent = false;
  if (proxy == nullptr) return;
  const auto in_the_way = [&](const auto& other) {
    return other != proxy && other->worker() == proxy->worker() && other->Writes();
  };
  while (std::any_of(proxies_.begin(), proxies_.end(), in_the_way)) {
    changed_.wait_for(lock, kLookForStop);
  }
  lock.unlock();
  proxy->Run();
  lock.lock();
  std::erase(proxies_, proxy);
}

// Nothing: the connection says something else first, or nothing at all.
std::optional<Request> Server::AwaitHello(Pipe& pipe) {
  const Deadline deadline = Deadline::After(served_.options.hello_limit);
  for (;;) {
    const Result<Arrival> arrival = pipe.Receive(deadline.Sooner(kLookForStop));
    if (arrival.ok()) {
      Result<Request> hello = DecodeRequest(arrival->header);
      if (!hello.ok() || hello->kind != Kind::kHello || arrival->bulk_floats > 0) return {};
      return std::move(*hello);
    }
    if (arrival.status().code() != Code::kDeadlineExceeded || deadline.Expired()) return {};
    const std::lock_guard lock(mutex_);
    if (stopping_) return {};
  }
}

// The end of a life's connection and the hello of the next come by two connections: who says hello
// may be heard first.
void Server::AwaitEndOfFormerLife(const Request& hello) {
  const Deadline deadline = Deadline::After(kEndIsSeen);
  // Of a life that is over anyhow nobody need wait for the end of the connection.
  const auto connected = [&](const auto& proxy) {
    return proxy->worker() == hello.hello.worker && proxy->session() != hello.session &&
           !proxy->Waits() && StateOf(served_.memory, proxy->worker()).phase == Phase::kRunning;
  };
  std::unique_lock lock(mutex_);
  while (!stopping_ && std::any_of(proxies_.begin(), proxies_.end(), connected) &&
         !deadline.Expired()) {
    changed_.wait_for(lock, kLookForEnd);
  }
}

// A new proxy for the worker at the other end; null if it has one, or may have none.
std::shared_ptr<Proxy> Server::Admit(const Request& hello, std::unique_ptr<Pipe>& pipe) {
  const std::lock_guard admission(admission_);
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return nullptr;
    for (const auto& proxy : proxies_) {
      if (proxy->session() == hello.session && proxy->Attach(pipe)) return nullptr;
      // Its former life will not come back.
      if (proxy->worker() == hello.hello.worker && proxy->Waits()) proxy->End();
    }
  }
  const auto worker = static_cast<std::size_t>(hello.hello.worker);
  const std::uint32_t former = worker < former_.size() ? former_[worker] : 0;
  Result<std::shared_ptr<Proxy>> proxy = Proxy::Make(served_, hello, former);
  if (!proxy.ok()) {
    Answer refusal;
    refusal.to = Kind::kHello;
    refusal.session = hello.session;
    refusal.status = proxy.status();
    refusal.yes = Proxy::HasLeft(served_.memory, hello);
    (void)pipe->Send(Encode(refusal), {});
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

void RefuseWhoComesBack(Pipe& pipe, int shard, bool of_several, bool has_checkpoints,
                        Deadline deadline) {
  const Result<Arrival> arrival = pipe.Receive(deadline);
  if (!arrival.ok()) return;
  const Result<Request> request = DecodeRequest(arrival->header);
  if (!request.ok() || request->kind != Kind::kHello) return;
  const Hello& hello = request->hello;
  if (!ComesBack(hello, shard)) return;
  const WorkerNames names{hello.chief, hello.chief_name};
  Answer refusal;
  refusal.to = Kind::kHello;
  refusal.session = request->session;
  const std::string what_now =
      of_several && !has_checkpoints
          ? std::string(
                "without --checkpoint_dir there is nothing to go back to, and the job is "
                "lost: end all tasks and start it anew")
          : fmt::format(
                "start {} again; the chief, {}, gives it values, of the newest checkpoint "
                "if there is one",
                names(hello.worker), names.chief_name);
  refusal.status = Aborted(fmt::format(
      "ps/{} was started again without its values, which no process of its host had kept: {}",
      shard, what_now));
  (void)pipe.Send(Encode(refusal), {});
}

}  // namespace passel::fabric

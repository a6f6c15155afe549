// server.h - a ps for workers that reach it by messages: one proxy for each.
//
// Threads    Any. Each pipe that is served has a thread of its own.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "fabric/pipe.h"
#include "fabric/wire.h"
#include "store/shard_memory.h"
#include "store/store_plan.h"

namespace passel::fabric {

class Proxy;

struct ServerOptions {
  /// How long a worker whose connection is gone may take to come back before it is taken for dead.
  std::chrono::nanoseconds grace = std::chrono::seconds(5);
  /// The same for one of whom Server::ConnectionEnded() was said: its process has ended, or makes
  /// its connection anew at once.
  std::chrono::nanoseconds ended_grace = std::chrono::milliseconds(1500);
  /// A connection that has not said hello for so long is closed, and so is one that comes while so
  /// many have not.
  std::chrono::nanoseconds hello_limit = std::chrono::seconds(10);
  int most_silent = 64;
  /// On ps/0: a connection that nothing comes by for so long, nor for the stall limit of its
  /// worker, is closed: the worker may make another. Who waits asks once a second.
  std::chrono::nanoseconds quiet_limit = std::chrono::seconds(10);
  /// WaitOptions::spin of the proxies: they share the processors of the ps.
  std::chrono::nanoseconds spin = std::chrono::microseconds(20);
};

/// What a server serves.
struct ServedShard {
  StorePlan plan;
  int shard = 0;
  ShardMemory memory;  ///< outlives the server
  ServerOptions options;
};

class Server {
 public:
  /// The workers of a server that served this memory before, and is gone, have the grace to come
  /// back too. Until then they count as running.
  explicit Server(ServedShard served);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Serves the worker at the other end, until it is gone. Returns at once.
  void Serve(std::unique_ptr<Pipe> pipe);
  /// The worker's host says that its connection has ended, by whatever else it has one. Until
  /// ConnectionBack() the shorter grace counts.
  void ConnectionEnded(int worker);
  void ConnectionBack(int worker);
  /// The worker's task has said that it ends. It is over, unless it has come to its end before.
  void Left(int worker);
  /// Ends all that Serve() began; the workers are taken for dead.
  void Stop();

 private:
  struct Connection {
    std::thread thread;
    bool silent = true;
    bool over = false;
  };
  void Run(Connection& connection, std::unique_ptr<Pipe> pipe);
  std::optional<Request> AwaitHello(Pipe& pipe);
  void AwaitEndOfFormerLife(const Request& hello);
  std::shared_ptr<Proxy> Admit(const Request& hello, std::unique_ptr<Pipe>& pipe);
  void GiveUpFormerWorkers();

  const ServedShard served_;
  std::mutex admission_;  // one Hello at a time; before mutex_
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::vector<std::uint32_t> former_;  // [workers]: epochs of lives that have no proxy; 0: none
  std::thread former_watch_;
  std::list<Connection> connections_;
  std::vector<std::shared_ptr<Proxy>> proxies_;
};

/// For a ps that has nothing to serve: who says hello by `pipe`, and had been let in before, is
/// told that its values are gone. Others are told nothing, and come again. `of_several`: other ps
/// have values that are of no use without its own, unless they all go back to a checkpoint.
void RefuseWhoComesBack(Pipe& pipe, int shard, bool of_several, bool has_checkpoints,
                        Deadline deadline);

}  // namespace passel::fabric

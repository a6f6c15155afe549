// redis_peer - values kept as one string of a redis-server, over loopback TCP or a Unix socket.
//
// Redis cannot add arrays: a push is GET, the subtraction on the client, SET (so two clients would
// lose updates), after which the client holds the new values. A pull is GET.
// --variant tcp or unix. The server is started from PATH, in an empty folder that is removed again,
// without persistence, on a port that was free a moment before.

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <sys/wait.h>

#include <filesystem>

#include "bench/peers/peer.h"

namespace peers {
namespace {

constexpr const char* kMe = "redis_peer";

int FreePort() {
  sockaddr_in address;
  ::close(ListenOnLoopback(kMe, &address));
  return ntohs(address.sin_port);
}

class Server {
 public:
  Server(bool tcp, int cpu) : tcp_(tcp) {
    std::string pattern = (std::filesystem::temp_directory_path() / "passel-redis-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) Fail(kMe, "cannot create " + pattern);
    folder_ = pattern;
    socket_ = folder_ + "/socket";
    port_ = tcp ? FreePort() : 0;
    const std::string port = std::to_string(port_);
    pid_ = ForkOn(kMe, cpu);
    if (pid_ == 0) {
      const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
      ::dup2(null, 0);
      ::dup2(null, 1);
      ::execlp("redis-server", "redis-server", "--port", port.c_str(), "--bind", "127.0.0.1",
               "--unixsocket", socket_.c_str(), "--dir", folder_.c_str(), "--save", "",
               "--appendonly", "no", "--daemonize", "no", nullptr);
      std::_Exit(127);
    }
  }
  ~Server() { Stop(); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  redisContext* Connect() {
    const timeval limit = {10, 0};
    for (int i = 0; i < 500; ++i) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        Fail(kMe, "redis-server did not start");
      }
      redisContext* context = tcp_ ? redisConnectWithTimeout("127.0.0.1", port_, limit)
                                   : redisConnectUnixWithTimeout(socket_.c_str(), limit);
      if (context != nullptr && context->err == 0) {
        redisSetTimeout(context, limit);
        return context;
      }
      if (context != nullptr) redisFree(context);
      const timespec pause = {0, 10000000};
      ::nanosleep(&pause, nullptr);
    }
    Fail(kMe, "redis-server did not answer within 5 s");
  }

  void Stop() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
    folder_.clear();
  }

 private:
  const bool tcp_;
  int port_ = 0;
  pid_t pid_ = -1;
  std::string folder_, socket_;
};

Server* running = nullptr;

// However the program ends, the server and its folder go with it.
void StopServer() {
  if (running != nullptr) running->Stop();
}
void OnSignal(int) {
  StopServer();
  std::_Exit(124);
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  if (options.variant != "tcp" && options.variant != "unix")
    Fail(kMe, "--variant must be tcp or unix", 2);
  Server server(options.variant == "tcp", options.second_cpu);
  running = &server;
  clean_up = StopServer;
  for (const int signal : {SIGALRM, SIGTERM, SIGINT}) ::signal(signal, OnSignal);
  Pin(kMe, options.first_cpu);
  redisContext* const context = server.Connect();
  const std::size_t bytes = options.elements * sizeof(float);
  std::vector<float> values = InitialValues(options.elements);
  const std::vector<float> gradient = Gradient(options.elements);

  const auto set = [&] {
    auto* reply = static_cast<redisReply*>(redisCommand(context, "SET w %b", values.data(), bytes));
    if (reply == nullptr || reply->type != REDIS_REPLY_STATUS)
      Fail(kMe, std::string("SET failed: ") + context->errstr);
    freeReplyObject(reply);
  };
  const auto pull = [&] {
    auto* reply = static_cast<redisReply*>(redisCommand(context, "GET w"));
    if (reply == nullptr || reply->type != REDIS_REPLY_STRING || reply->len != bytes)
      Fail(kMe, std::string("GET failed: ") + context->errstr);
    std::memcpy(values.data(), reply->str, bytes);
    freeReplyObject(reply);
  };
  const auto push = [&] {
    pull();
    float* const to = values.data();
    const float* const from = gradient.data();
    for (std::size_t i = 0; i < options.elements; ++i) to[i] -= from[i];
    set();
  };
  set();
  MeasureClient(kMe, options, push, pull, push, [&] { return values.data(); });
  redisFree(context);
  return 0;
}

}  // namespace
}  // namespace peers

int main(int argc, char** argv) { return peers::Main(argc, argv); }

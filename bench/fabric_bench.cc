// passel_fabric_bench: what passel's two ways to another host cost beside the bare exchange that
// libfabric can do.
//
//   passel_fabric_bench [--provider=tcp;ofi_rxm] [--address=127.0.0.1] [--rounds=5] [--json]
//
// Two processes. An exchange is so many bytes there and so many back. Columns, in microseconds,
// medians of all turns:
//   bare       tagged sends into receives that are posted before, whole or in parts, up to 16 of
//              them at a time: the best size
//   libfabric  the same by a FabricPipe: a header of 60 bytes (8 for the first row), then the bulk
//   sealed     the same by a TcpPipe
// Then steps of stores (fabric_step.h) by a FabricPipe that always polls, by one as the program
// makes them, and by a TcpPipe, and the same on memory of this process. All take turns within each
// round, so that they meet the same machine. What came is compared with what was sent. --json: one
// object a line.

#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/tcp_socket.h"
#include "bench/fabric_step.h"
#include "fabric/control/tcp_pipe.h"
#include "fabric/libfabric/endpoint.h"
#include "fabric/libfabric/fabric_pipe.h"

namespace passel::fabric {
namespace {

struct Settings {
  NetworkOptions network;
  int rounds = 5;
  bool tiny = false, quick = false, json = false;
};

// Longer than any wait for an answer, and over before the next one's turn.
constexpr std::chrono::milliseconds kPolls{2};
constexpr std::size_t kStepFloats = 79'510;  // of an MLP 784-100-10

template <typename T>
T Need(Result<T> result) {
  PASSEL_CHECK(result.ok(), result.status().ToString().c_str());
  return std::move(*result);
}
void Need(const Status& status) { PASSEL_CHECK(status.ok(), status.ToString().c_str()); }

// The two processes tell each other addresses by it.
std::vector<std::uint8_t> Swap(int socket, const std::vector<std::uint8_t>& own) {
  std::vector<std::uint8_t> other(1000);
  PASSEL_CHECK(::send(socket, own.data(), own.size(), 0) > 0, "the other process is there");
  const ssize_t got = ::recv(socket, other.data(), other.size(), 0);
  PASSEL_CHECK(got > 0, "the other process is there");
  other.resize(static_cast<std::size_t>(got));
  return other;
}

// What a program that knows all sizes beforehand would do.
class Bare {
 public:
  Bare(const std::shared_ptr<Network>& network, int socket)
      : endpoint_(Need(Endpoint::Open(network))) {
    Need(endpoint_->SetPeer(Swap(socket, endpoint_->address())));
  }

  void PostReceives(std::span<float> into, std::size_t chunk) {
    receives_.Begin(into.data(), into.size_bytes(), chunk);
    Post();
  }
  void Send(std::span<const float> from, std::size_t chunk) {
    // Only read.
    sends_.Begin(const_cast<float*>(from.data()), from.size_bytes(), chunk);
    Await(sends_);
  }
  void AwaitReceived() { Await(receives_); }

 private:
  static constexpr std::uint64_t kTag = 77;
  static constexpr std::size_t kWindow = 16;

  // A bulk that travels in parts, some of which are under way.
  struct Parts {
    void Begin(void* memory, std::size_t size, std::size_t part) {
      bytes = {static_cast<std::byte*>(memory), size};
      chunk = part;
      count = (size + part - 1) / part;
      posted = done = 0;
    }
    std::span<std::byte> Next() const {
      return bytes.subspan(posted * chunk, std::min(chunk, bytes.size() - posted * chunk));
    }
    Transfer& transfer(std::size_t part) { return transfers[part % kWindow]; }

    std::span<std::byte> bytes;
    std::size_t chunk = 0, count = 0, posted = 0, done = 0;
    std::array<Transfer, kWindow> transfers;
  };

  template <typename PostOne>
  static void Fill(Parts& parts, PostOne&& post) {
    while (parts.posted < parts.count && parts.posted - parts.done < kWindow &&
           post(parts.Next(), &parts.transfer(parts.posted))) {
      ++parts.posted;
    }
  }
  void Post() {
    Fill(receives_, [this](auto part, Transfer* transfer) {
      return Need(endpoint_->PostReceive(part, nullptr, kTag, transfer));
    });
    Fill(sends_, [this](auto part, Transfer* transfer) {
      return Need(endpoint_->PostSend(part, nullptr, kTag, transfer));
    });
  }
  void Poll() {
    Endpoint::Completions completions;
    const std::size_t count = Need(endpoint_->Poll(&completions));
    for (std::size_t i = 0; i < count; ++i) {
      PASSEL_CHECK(completions[i].error == 0, "a bare transfer has failed");
      completions[i].transfer->done = true;
    }
    for (Parts* parts : {&receives_, &sends_}) {
      while (parts->done < parts->posted && parts->transfer(parts->done).done) ++parts->done;
    }
  }
  void Await(const Parts& parts) {
    while (parts.done < parts.count) {
      Post();
      Poll();
    }
  }

  const std::unique_ptr<Endpoint> endpoint_;
  Parts sends_, receives_;
};

// Both processes have the same keys for what the first, or the second, sends.
StreamKeys KeysOf(bool first) {
  StreamKeys keys;
  keys.send.fill(1);
  keys.receive.fill(2);
  if (!first) std::swap(keys.send, keys.receive);
  return keys;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Program {
 public:
  Program(const Settings& settings, int socket, FileDescriptor tcp, bool asks)
      : settings_(settings),
        asks_(asks),
        socket_(socket),
        network_(Need(Network::Open(settings.network))),
        bare_(network_, socket),
        fabric_(Meet(kPolls)),
        sealed_(std::make_unique<TcpPipe>(
            std::make_shared<Channel>(std::move(tcp), KeysOf(asks), std::chrono::seconds(60)))) {}

  void Run() {
    if (asks_ && !settings_.json) {
      fmt::print("{:>12} {:>12} {:>10} {:>10} {:>8} {:>10} {:>8}\n", "bytes", "bare part",
                 "bare us", "libfabric", "ratio", "sealed", "ratio");
    }
    RunSize(2, {8}, settings_.tiny ? 50 : 2000);
    if (settings_.tiny) {
      RunSize(20'000, {40'000}, 5);
    } else {
      RunSize(kStepFloats, {65'536, 131'072, 318'040}, 300);
      RunSize(1 << 20, {256 << 10, 1 << 20, 4 << 20}, 40);
      if (!settings_.quick) {
        RunSize(16 << 20, {512 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}, 5);
      }
    }
    RunSteps(settings_.tiny ? 20 : 300);
  }

 private:
  std::unique_ptr<FabricPipe> Meet(std::chrono::nanoseconds spin) {
    FabricPipeOptions options;
    options.spin = spin;
    options.gives_way = spin < kPolls;
    options.stall_limit = std::chrono::seconds(60);
    std::unique_ptr<FabricPipe> pipe = Need(FabricPipe::Open(network_, options));
    const PipeTags tags{0x1234'5678'9abc'def0, 0x0fed'cba9'8765'4320};
    Need(pipe->Join(Swap(socket_, pipe->local_address()), asks_ ? tags : tags.OfTheOtherEnd()));
    return pipe;
  }

  void RunSize(std::size_t floats, const std::vector<std::size_t>& chunks, int turns) {
    out_.resize(floats);
    in_.assign(floats, -1);
    std::iota(out_.begin(), out_.end(), 0.0F);
    std::map<std::size_t, std::vector<double>> bare;
    std::vector<double> fabric, sealed;
    for (int round = -1; round < settings_.rounds; ++round) {  // the first is for warming up
      for (const std::size_t chunk : chunks)
        RunBare(chunk, turns, round < 0 ? nullptr : &bare[chunk]);
      RunPipe(*fabric_, turns, round < 0 ? nullptr : &fabric);
      RunPipe(*sealed_, turns, round < 0 ? nullptr : &sealed);
    }
    if (!asks_) return;
    std::size_t best = chunks[0];
    for (const std::size_t chunk : chunks) {
      if (Median(bare[chunk]) < Median(bare[best])) best = chunk;
    }
    const double least = Median(bare[best]), by_fabric = Median(fabric), by_tcp = Median(sealed);
    if (settings_.json) {
      fmt::print(
          "{{\"what\": \"exchange\", \"bytes\": {}, \"bare_part\": {}, \"bare_us\": {:.2f}, "
          "\"libfabric_us\": {:.2f}, \"sealed_us\": {:.2f}}}\n",
          floats * sizeof(float), best, least, by_fabric, by_tcp);
    } else {
      fmt::print("{:>12} {:>12} {:>10.1f} {:>10.1f} {:>8.2f} {:>10.1f} {:>8.2f}\n",
                 floats * sizeof(float), best, least, by_fabric, by_fabric / least, by_tcp,
                 by_tcp / least);
    }
    std::fflush(stdout);
  }

  void RunSteps(int steps) {
    std::vector<bench::StepPipe> pipes;
    pipes.push_back({"libfabric, polling", Meet(kPolls)});
    pipes.push_back({"libfabric", Meet(FabricPipeOptions().spin)});
    pipes.push_back({"sealed", std::move(sealed_)});
    if (!asks_) return Need(bench::ServeSteps(kStepFloats, std::move(pipes), socket_));
    const bench::StepResult result =
        Need(bench::MeasureSteps(kStepFloats, std::move(pipes), settings_.rounds, steps));
    const double update = Median(result.update_us);
    for (const bench::StepTimes& one : result.remote) {
      const double us = Median(one.us);
      if (settings_.json) {
        fmt::print(
            "{{\"what\": \"step\", \"by\": \"{}\", \"floats\": {}, \"us\": {:.2f}, "
            "\"update_us\": {:.2f}}}\n",
            one.name, kStepFloats, us, update);
      } else {
        fmt::print("step of {} floats by {}: {:.1f} us, of which {:.1f} us are the update\n",
                   kStepFloats, one.name, us, update);
      }
    }
  }

  void RunBare(std::size_t chunk, int turns, std::vector<double>* times) {
    bare_.PostReceives(in_, chunk);
    for (int i = 0; i < turns; ++i) {
      const bool last = i + 1 == turns;
      const std::int64_t begin = MonotonicNs();
      if (asks_) bare_.Send(out_, chunk);
      bare_.AwaitReceived();
      if (!asks_) {
        Check();
        if (!last) bare_.PostReceives(in_, chunk);
        bare_.Send(out_, chunk);
        continue;
      }
      if (times != nullptr) times->push_back(1e-3 * static_cast<double>(MonotonicNs() - begin));
      Check();
      if (!last) bare_.PostReceives(in_, chunk);
    }
  }

  void RunPipe(Pipe& pipe, int turns, std::vector<double>* times) {
    const bool small = out_.size() <= 2;
    const std::vector<std::uint8_t> header(small ? 8 : 60, 1);
    const std::span<const float> bulk = small ? std::span<const float>() : out_;
    const auto receive = [&] {
      const Arrival arrival = Need(pipe.Receive(Deadline::After(std::chrono::seconds(60))));
      PASSEL_CHECK(arrival.bulk_floats == bulk.size(), "all has come");
      Need(pipe.ReadBulk(std::span(in_).first(arrival.bulk_floats)));
    };
    for (int i = 0; i < turns; ++i) {
      const std::int64_t begin = MonotonicNs();
      if (asks_) Need(pipe.Send(header, bulk));
      receive();
      if (asks_ && times != nullptr) {
        times->push_back(1e-3 * static_cast<double>(MonotonicNs() - begin));
      }
      if (!small) Check();
      if (!asks_) Need(pipe.Send(header, bulk));
    }
  }

  // At a few places, so that it takes no time.
  void Check() {
    const std::size_t places[] = {0, in_.size() / 2, in_.size() - 1};
    for (const std::size_t at : places) {
      PASSEL_CHECK(in_[at] == out_[at], "what came is what was sent");
    }
    for (const std::size_t at : places) in_[at] = -1;
  }

  const Settings settings_;
  const bool asks_;
  const int socket_;
  const std::shared_ptr<Network> network_;
  Bare bare_;
  const std::unique_ptr<FabricPipe> fabric_;
  std::unique_ptr<TcpPipe> sealed_;
  std::vector<float> out_, in_;
};

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("the two ways to another host beside a bare exchange over libfabric");
  app.add_option("--provider", settings.network.provider);
  app.add_option("--address", settings.network.address);
  app.add_option("--rounds", settings.rounds);
  app.add_flag("--quick", settings.quick, "not the largest size");
  app.add_flag("--json", settings.json, "one object a line");
  app.add_flag("--tiny", settings.tiny, "small sizes, for a test of this program");
  CLI11_PARSE(app, argc, argv);
  SetProviderDefaults();
  // Libraries that come with libfabric have taken it, and do not always end.
  (void)std::signal(SIGTERM, SIG_DFL);
  int ends[2];
  PASSEL_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "sockets");
  const TcpAddress any = Need(TcpAddress::FromNumbers(
      settings.network.address.empty() ? "127.0.0.1" : settings.network.address, 0));
  const FileDescriptor listening = Need(ListenTcp(any));
  const TcpAddress listens = Need(LocalAddress(listening.get()));
  const Deadline soon = Deadline::After(std::chrono::seconds(10));
  // Before anything of libfabric, which a fork does not survive.
  const pid_t child = ::fork();
  PASSEL_CHECK(child >= 0, "a second process");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    FileDescriptor tcp = Need(ConnectTcp(listens, soon));
    Program(settings, ends[1], std::move(tcp), false).Run();
    ::_exit(0);
  }
  ::close(ends[1]);
  PASSEL_CHECK(AwaitReady(listening.get(), POLLIN, soon), "the other process is there");
  FileDescriptor tcp = Need(AcceptTcp(listening.get())).socket;
  {
    Program program(settings, ends[0], std::move(tcp), true);
    program.Run();
    ::close(ends[0]);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace passel::fabric

int main(int argc, char** argv) { return passel::fabric::Main(argc, argv); }

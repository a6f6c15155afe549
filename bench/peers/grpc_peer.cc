// grpc_peer - push and pull as unary calls over loopback, one call at a time. --variant client: the
// synchronous API, which sleeps while it waits; polling: completion queues on both sides that are
// asked again and again. The server process owns the values and subtracts what it receives;
// PushPull answers with the new values. It is this program, started once more with --variant server
// or polling-server, on a port that gRPC chooses.

#include <fcntl.h>
#include <grpc/support/time.h>
#include <grpc_peer.grpc.pb.h>
#include <grpcpp/grpcpp.h>
#include <sys/wait.h>

#include <memory>
#include <mutex>

#include "bench/peers/peer.h"

namespace peers {
namespace {

constexpr const char* kMe = "grpc_peer";

class Store {
 public:
  explicit Store(std::size_t elements) : values_(InitialValues(elements)) {}

  grpc::Status Subtract(const Values& gradient) {
    const std::string& bytes = gradient.values();
    if (bytes.size() != values_.size() * sizeof(float))
      return {grpc::StatusCode::INVALID_ARGUMENT, "a gradient of another size"};
    const auto* from = reinterpret_cast<const float*>(bytes.data());
    float* const to = values_.data();
    for (std::size_t i = 0; i < values_.size(); ++i) to[i] -= from[i];
    return grpc::Status::OK;
  }
  grpc::Status Copy(Values* values) {
    values->set_values(values_.data(), values_.size() * sizeof(float));
    return grpc::Status::OK;
  }
  grpc::Status SubtractAndCopy(const Values& gradient, Values* values) {
    const grpc::Status status = Subtract(gradient);
    return status.ok() ? Copy(values) : status;
  }

 private:
  std::vector<float> values_;
};

class Service final : public Parameters::Service {
 public:
  explicit Service(std::size_t elements) : store_(elements) {}

  grpc::Status Push(grpc::ServerContext*, const Values* gradient, Empty*) override {
    const std::scoped_lock lock(mutex_);
    return store_.Subtract(*gradient);
  }
  grpc::Status Pull(grpc::ServerContext*, const Empty*, Values* values) override {
    const std::scoped_lock lock(mutex_);
    return store_.Copy(values);
  }
  grpc::Status PushPull(grpc::ServerContext*, const Values* gradient, Values* values) override {
    const std::scoped_lock lock(mutex_);
    return store_.SubtractAndCopy(*gradient, values);
  }

 private:
  std::mutex mutex_;
  Store store_;
};

// The next event of `queue`, which is asked again and again; null when it is over, or failed.
void* PollNext(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  for (;;) {
    switch (queue.AsyncNext(&tag, &ok, gpr_time_0(GPR_CLOCK_MONOTONIC))) {
      case grpc::CompletionQueue::GOT_EVENT:
        return ok ? tag : nullptr;
      case grpc::CompletionQueue::SHUTDOWN:
        return nullptr;
      case grpc::CompletionQueue::TIMEOUT:
        break;
    }
  }
}

// One call after the other, of one client.
class PollingServer {
 public:
  explicit PollingServer(std::size_t elements) : store_(elements) {}
  Parameters::AsyncService service;

  void Run(grpc::ServerCompletionQueue& queue) {
    Ask(push_, &Parameters::AsyncService::RequestPush, queue);
    Ask(pull_, &Parameters::AsyncService::RequestPull, queue);
    Ask(both_, &Parameters::AsyncService::RequestPushPull, queue);
    for (;;) {
      void* const tag = PollNext(queue);
      if (tag == nullptr) return;
      if (tag == &push_) {
        Turn(push_, &Parameters::AsyncService::RequestPush, queue,
             [&](auto& call) { return store_.Subtract(call.request); });
      } else if (tag == &pull_) {
        Turn(pull_, &Parameters::AsyncService::RequestPull, queue,
             [&](auto& call) { return store_.Copy(&call.answer); });
      } else {
        Turn(both_, &Parameters::AsyncService::RequestPushPull, queue,
             [&](auto& call) { return store_.SubtractAndCopy(call.request, &call.answer); });
      }
    }
  }

 private:
  template <typename Request, typename Answer>
  struct Call {
    std::unique_ptr<grpc::ServerContext> context;
    Request request;
    Answer answer;
    std::unique_ptr<grpc::ServerAsyncResponseWriter<Answer>> writer;
    bool answered = false;
  };

  template <typename OneCall, typename Method>
  void Ask(OneCall& call, Method method, grpc::ServerCompletionQueue& queue) {
    call.answered = false;
    call.context = std::make_unique<grpc::ServerContext>();
    call.writer =
        std::make_unique<typename decltype(call.writer)::element_type>(call.context.get());
    (service.*method)(call.context.get(), &call.request, call.writer.get(), &queue, &queue, &call);
  }
  // A call has come, or its answer has gone.
  template <typename OneCall, typename Method, typename Work>
  void Turn(OneCall& call, Method method, grpc::ServerCompletionQueue& queue, Work&& work) {
    if (call.answered) return Ask(call, method, queue);
    call.answered = true;
    const grpc::Status status = work(call);
    call.writer->Finish(call.answer, status, &call);
  }

  Store store_;
  Call<Values, Empty> push_;
  Call<Empty, Values> pull_;
  Call<Values, Values> both_;
};

// Writes its port to standard output and serves until it is killed.
int Serve(const Options& options, bool polling) {
  Service service(options.elements);
  PollingServer polled(options.elements);
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  if (polling) {
    builder.RegisterService(&polled.service);
    queue = builder.AddCompletionQueue();
  } else {
    builder.RegisterService(&service);
  }
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) Fail(kMe, "the server cannot listen on a loopback port");
  std::printf("%d\n", port);
  std::fflush(stdout);
  if (polling) polled.Run(*queue);
  server->Wait();
  return 0;
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  if (options.variant == "server") return Serve(options, false);
  if (options.variant == "polling-server") return Serve(options, true);
  if (options.variant != "client" && options.variant != "polling")
    Fail(kMe, "--variant must be client or polling", 2);
  const bool polling = options.variant == "polling";
  int from_server[2];
  if (::pipe2(from_server, O_CLOEXEC) != 0) Fail(kMe, "no pipe");
  const pid_t server = ForkOn(kMe, options.second_cpu);
  if (server == 0) {
    ::dup2(from_server[1], 1);
    std::vector<char*> words(argv, argv + argc);
    std::string name = "--variant", value = polling ? "polling-server" : "server";
    words.push_back(name.data());
    words.push_back(value.data());
    words.push_back(nullptr);
    ::execv("/proc/self/exe", words.data());
    std::_Exit(127);
  }
  ::close(from_server[1]);
  Pin(kMe, options.first_cpu);
  std::FILE* const lines = ::fdopen(from_server[0], "r");
  int port = 0;
  if (std::fscanf(lines, "%d", &port) != 1) Fail(kMe, "the server did not start");

  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  const auto channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                                 grpc::InsecureChannelCredentials(), arguments);
  const std::unique_ptr<Parameters::Stub> stub = Parameters::NewStub(channel);
  const std::size_t bytes = options.elements * sizeof(float);
  const std::vector<float> gradient = Gradient(options.elements);
  Values request, answer;
  Empty empty, nothing;
  const auto call = [&](const auto& method) {
    grpc::ClientContext context;
    context.set_deadline(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(10, GPR_TIMESPAN)));
    const grpc::Status status = method(&context);
    if (!status.ok()) {
      ::kill(server, SIGKILL);
      Fail(kMe, "a call failed: " + status.error_message());
    }
  };
  grpc::CompletionQueue queue;
  const auto await = [&](auto reader, auto* into) {
    grpc::Status status;
    reader->Finish(into, &status, &status);
    if (PollNext(queue) != &status) Fail(kMe, "a call has no end");
    return status;
  };
  // The gradient is written into the message each time, as a trainer would have to.
  const auto push = [&] {
    request.set_values(gradient.data(), bytes);
    call([&](grpc::ClientContext* c) {
      return polling ? await(stub->AsyncPush(c, request, &queue), &nothing)
                     : stub->Push(c, request, &nothing);
    });
  };
  const auto pull = [&] {
    call([&](grpc::ClientContext* c) {
      return polling ? await(stub->AsyncPull(c, empty, &queue), &answer)
                     : stub->Pull(c, empty, &answer);
    });
  };
  const auto both = [&] {
    request.set_values(gradient.data(), bytes);
    call([&](grpc::ClientContext* c) {
      return polling ? await(stub->AsyncPushPull(c, request, &queue), &answer)
                     : stub->PushPull(c, request, &answer);
    });
  };
  std::vector<float> values(options.elements);
  const auto seen = [&] {
    if (answer.values().size() != bytes) Fail(kMe, "WRONG: a pull of another size");
    std::memcpy(values.data(), answer.values().data(), bytes);
    return values.data();
  };
  MeasureClient(kMe, options, push, pull, both, seen);
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace peers

int main(int argc, char** argv) { return peers::Main(argc, argv); }

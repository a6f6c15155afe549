// grpc_peer - push and pull as unary calls over loopback: the synchronous API, one call at a time.
// The server process owns the values and subtracts what it receives; PushPull answers with the new
// values. It is this program, started once more with --variant server, on a port that gRPC chooses.

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

class Service final : public Parameters::Service {
 public:
  explicit Service(std::size_t elements) : values_(InitialValues(elements)) {}

  grpc::Status Push(grpc::ServerContext*, const Values* gradient, Empty*) override {
    const std::scoped_lock lock(mutex_);
    return Subtract(*gradient);
  }
  grpc::Status Pull(grpc::ServerContext*, const Empty*, Values* values) override {
    const std::scoped_lock lock(mutex_);
    return Copy(values);
  }
  grpc::Status PushPull(grpc::ServerContext*, const Values* gradient, Values* values) override {
    const std::scoped_lock lock(mutex_);
    const grpc::Status status = Subtract(*gradient);
    return status.ok() ? Copy(values) : status;
  }

 private:
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

  std::mutex mutex_;
  std::vector<float> values_;
};

// Writes its port to standard output and serves until it is killed.
int Serve(const Options& options) {
  Service service(options.elements);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) Fail(kMe, "the server cannot listen on a loopback port");
  std::printf("%d\n", port);
  std::fflush(stdout);
  server->Wait();
  return 0;
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  if (options.variant == "server") return Serve(options);
  int from_server[2];
  if (::pipe2(from_server, O_CLOEXEC) != 0) Fail(kMe, "no pipe");
  const pid_t server = ForkOn(kMe, options.second_cpu);
  if (server == 0) {
    ::dup2(from_server[1], 1);
    std::vector<char*> words(argv, argv + argc);
    std::string name = "--variant", value = "server";
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
  // The gradient is written into the message each time, as a trainer would have to.
  const auto push = [&] {
    request.set_values(gradient.data(), bytes);
    call([&](grpc::ClientContext* c) { return stub->Push(c, request, &nothing); });
  };
  const auto pull = [&] {
    call([&](grpc::ClientContext* c) { return stub->Pull(c, empty, &answer); });
  };
  const auto both = [&] {
    request.set_values(gradient.data(), bytes);
    call([&](grpc::ClientContext* c) { return stub->PushPull(c, request, &answer); });
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

#include "cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cuda/cublaslt.h"
#include "cuda/cuda_context.h"
#include "cuda/cuda_memory.h"
#include "cuda/cuda_try.h"
#include "cuda/kernel_call.h"
#include "cuda/plugin_log.h"

namespace passel::cuda {
namespace {

cudaMemcpyKind KindOf(Copy::Kind kind) {
  switch (kind) {
    case Copy::Kind::kHostToDevice:
      return cudaMemcpyHostToDevice;
    case Copy::Kind::kDeviceToHost:
      return cudaMemcpyDeviceToHost;
    case Copy::Kind::kDeviceToDevice:
      break;
  }
  return cudaMemcpyDeviceToDevice;
}

class CudaExecutable : public Device::Executable {
 public:
  explicit CudaExecutable(const Plan& plan) : nodes(plan.nodes()) {}
  ~CudaExecutable() override {
    // A graph that still runs is destroyed when it is done. At the end of the process there may be
    // nothing left to destroy.
    if (graph_exec != nullptr && cudaGraphExecDestroy(graph_exec) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
    }
  }

  const std::vector<Node> nodes;
  std::vector<std::unique_ptr<CublasLt::Matmul>> matmuls;  // [node], null where there is none
  cudaGraphExec_t graph_exec = nullptr;                    // null: one by one
  std::string name;                                        // of the launch, for errors
};

// Destroys a graph that was instantiated, or never will be.
struct GraphOwner {
  cudaGraph_t graph = nullptr;
  ~GraphOwner() {
    if (graph != nullptr && cudaGraphDestroy(graph) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
    }
  }
};

class CudaDevice : public Device {
 public:
  CudaDevice(const ProbedDevice& device, std::uint64_t limit)
      : context_(device), memory_(*this, context_, limit) {}
  ~CudaDevice() override {
    cublaslt_.reset();
    workspace_.reset();
    // Memory that its owner abandoned may still be written to, and the stream with it.
    if (memory_.empty()) context_.Close();
  }

  Status Init() { return context_.Init(); }
  const AcceleratorInfo& info() const override { return context_.info(); }
  Result<Memory> Allocate(std::size_t bytes) override { return memory_.Allocate(bytes); }
  Result<Memory> AllocatePinned(std::size_t bytes) override {
    return memory_.AllocatePinned(bytes);
  }
  Result<Memory> Register(void* begin, std::size_t bytes) override {
    return memory_.Register(begin, bytes);
  }
  Result<Memory> CreateShared(std::size_t bytes, FileDescriptor* fd) override {
    return memory_.CreateShared(bytes, fd);
  }
  Result<Memory> ImportShared(int fd, std::size_t bytes, const std::string& home) override {
    return memory_.ImportShared(fd, bytes, home);
  }
  Status CopyIn(void* to, const void* from_host, std::size_t bytes) override;
  Status CopyOut(void* to_host, const void* from, std::size_t bytes) override;
  Result<Library> HasLibrary() override;
  Result<std::unique_ptr<Executable>> Prepare(const Plan& plan, How how) override;
  Status Launch(Executable& executable) override;
  Status Health() override { return context_.Health(); }
  Status Synchronize(Deadline deadline) override { return context_.Synchronize(deadline); }

 protected:
  void Release(Deleter::Kind kind, void* memory) override { memory_.Release(kind, memory); }

 private:
  Status CheckNode(const Node& node) const;
  Status CheckKernel(const Node& node, const AnyKernel& kernel) const;
  Result<std::unique_ptr<CublasLt::Matmul>> PrepareMatmul(const LargeGemm& gemm);
  // By events around it; waits for its end.
  Result<double> TimeOf(const std::function<Status()>& queue);
  Status OpenLibrary();
  Status BuildGraph(CudaExecutable* executable);
  Status AddNode(const CudaExecutable& executable, std::size_t number, cudaGraph_t graph,
                 const std::vector<cudaGraphNode_t>& waits, cudaGraphNode_t* out);
  Status AddMatmul(CublasLt::Matmul& matmul, const std::string& name, cudaGraph_t graph,
                   const std::vector<cudaGraphNode_t>& waits, cudaGraphNode_t* out);
  Status Queue(const CudaExecutable& executable, std::size_t number);
  Status CopyNow(const char* what, void* to, const void* from, std::size_t bytes,
                 cudaMemcpyKind kind);

  CudaContext context_;
  CudaMemory memory_;
  // In the order of their making: the handle goes before its workspace.
  Memory workspace_;
  std::unique_ptr<CublasLt> cublaslt_;
};

Status CudaDevice::CopyNow(const char* what, void* to, const void* from, std::size_t bytes,
                           cudaMemcpyKind kind) {
  PASSEL_RETURN_IF_ERROR(context_.Enter());
  if (bytes == 0) return {};
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, context_.stream());
  if (error != cudaSuccess) {
    return context_.KeepIfLost(CudaStatus(error, what, "cudaMemcpyAsync", __FILE__, __LINE__));
  }
  return Synchronize(Deadline::After(std::chrono::seconds(kCopySeconds))).WithContext(what);
}

Status CudaDevice::CopyIn(void* to, const void* from_host, std::size_t bytes) {
  return CopyNow("copying to the GPU", to, from_host, bytes, cudaMemcpyHostToDevice);
}

Status CudaDevice::CopyOut(void* to_host, const void* from, std::size_t bytes) {
  return CopyNow("copying from the GPU", to_host, from, bytes, cudaMemcpyDeviceToHost);
}

// An asynchronous copy from or to pageable memory waits where it should not, or does worse.
Status CudaDevice::CheckNode(const Node& node) const {
  if (const auto* copy = std::get_if<Copy>(&node.operation)) {
    const void* host = copy->kind == Copy::Kind::kHostToDevice   ? copy->from
                       : copy->kind == Copy::Kind::kDeviceToHost ? copy->to
                                                                 : nullptr;
    if (host != nullptr && !memory_.IsReachable(host, copy->bytes)) {
      return FailedPrecondition(fmt::format(
          "{}: {} bytes of host memory are neither pinned nor registered", node.name, copy->bytes));
    }
  } else if (const auto* kernel = std::get_if<AnyKernel>(&node.operation)) {
    return CheckKernel(node, *kernel);
  }
  return {};
}

Status CudaDevice::CheckKernel(const Node& node, const AnyKernel& kernel) const {
  const KernelCall call = CallOf(kernel);
  // Asking loads the kernel's module, which otherwise its first launch would wait for.
  cudaFuncAttributes attributes{};
  PASSEL_CUDA_TRY(node.name, cudaFuncGetAttributes(&attributes, call.function));
  if (call.grid.threads > static_cast<unsigned>(attributes.maxThreadsPerBlock)) {
    return Internal(fmt::format("{}: a block of {} threads, but the kernel was compiled for {}",
                                node.name, call.grid.threads, attributes.maxThreadsPerBlock));
  }
  if (call.grid.blocks_x == 0 || call.grid.blocks_y == 0 || call.grid.threads == 0 ||
      call.grid.blocks_x > 0x7fffffffu || call.grid.blocks_y > 65535) {
    return InvalidArgument(fmt::format(
        "{}: a grid of {} x {} blocks of {} threads; at most 2147483647 x 65535 blocks, "
        "at least one of each, are possible",
        node.name, call.grid.blocks_x, call.grid.blocks_y, call.grid.threads));
  }
  return {};
}

// Errors: kFailedPrecondition for a product that the library does not have, and others.
Result<std::unique_ptr<CublasLt::Matmul>> CudaDevice::PrepareMatmul(const LargeGemm& gemm) {
  PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<CublasLt::Matmul> matmul, cublaslt_->Prepare(gemm));
  if (matmul->scratch_bytes() == 0) return matmul;
  // The runs into scratch load what the library loads on first use, outside of any capture.
  PASSEL_ASSIGN_OR_RETURN(Memory scratch, Allocate(matmul->scratch_bytes()));
  Status chosen =
      matmul->Choose(context_.stream(), scratch.get(),
                     [this](const std::function<Status()>& queue) { return TimeOf(queue); });
  if (!chosen.ok()) return context_.KeepIfLost(std::move(chosen));
  return matmul;
}

Result<double> CudaDevice::TimeOf(const std::function<Status()>& queue) {
  struct Event {
    cudaEvent_t event = nullptr;
    ~Event() {
      if (event != nullptr && cudaEventDestroy(event) != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
      }
    }
  };
  Event begin, end;
  PASSEL_CUDA_TRY("timing a product", cudaEventCreate(&begin.event));
  PASSEL_CUDA_TRY("timing a product", cudaEventCreate(&end.event));
  PASSEL_CUDA_TRY("timing a product", cudaEventRecord(begin.event, context_.stream()));
  if (Status queued = queue(); !queued.ok()) {
    static_cast<void>(cudaGetLastError());  // of a run that was refused, if there is one
    return queued;
  }
  PASSEL_CUDA_TRY("timing a product", cudaEventRecord(end.event, context_.stream()));
  PASSEL_RETURN_IF_ERROR(Synchronize(Deadline::After(std::chrono::seconds(kCopySeconds))));
  float milliseconds = 0;
  PASSEL_CUDA_TRY("timing a product", cudaEventElapsedTime(&milliseconds, begin.event, end.event));
  return 1e-3 * static_cast<double>(milliseconds);
}

Status CudaDevice::OpenLibrary() {
  if (cublaslt_ != nullptr) return {};
  PASSEL_ASSIGN_OR_RETURN(Memory workspace, Allocate(CublasLt::kWorkspaceBytes));
  PASSEL_ASSIGN_OR_RETURN(cublaslt_, CublasLt::Open(workspace.get()));
  workspace_ = std::move(workspace);
  return {};
}

Result<Device::Library> CudaDevice::HasLibrary() {
  PASSEL_RETURN_IF_ERROR(context_.Enter());
  const Status opened = OpenLibrary();
  if (opened.ok()) return Library{true, ""};
  if (opened.code() != Code::kNotFound) return opened;
  return Library{false, opened.message()};
}

Result<std::unique_ptr<Device::Executable>> CudaDevice::Prepare(const Plan& plan, How how) {
  PASSEL_RETURN_IF_ERROR(context_.Enter());
  // The scratch run below reads what a running launch may write.
  PASSEL_RETURN_IF_ERROR(Synchronize(Deadline::After(std::chrono::seconds(kCopySeconds))));
  auto executable = std::make_unique<CudaExecutable>(plan);
  for (const Node& node : executable->nodes) {
    PASSEL_RETURN_IF_ERROR(CheckNode(node));
    if (const auto* gemm = std::get_if<LargeGemm>(&node.operation)) {
      PASSEL_RETURN_IF_ERROR(OpenLibrary());
      auto matmul = PrepareMatmul(*gemm);
      if (!matmul.ok()) return matmul.status().WithContext(node.name);
      PluginLogInfo(node.name + ", " + (*matmul)->Describe());
      executable->matmuls.push_back(std::move(matmul).value());
    } else {
      executable->matmuls.push_back(nullptr);
    }
    executable->name += (executable->name.empty() ? "" : ", ") + node.name;
  }
  executable->name =
      fmt::format("a launch of {} operations ({})", executable->nodes.size(), executable->name);
  if (how == How::kGraph) PASSEL_RETURN_IF_ERROR(BuildGraph(executable.get()));
  return std::unique_ptr<Executable>(std::move(executable));
}

Status CudaDevice::BuildGraph(CudaExecutable* executable) {
  GraphOwner owner;
  PASSEL_CUDA_TRY("making a graph", cudaGraphCreate(&owner.graph, 0));
  std::vector<cudaGraphNode_t> made(executable->nodes.size());
  for (std::size_t number = 0; number < made.size(); ++number) {
    std::vector<cudaGraphNode_t> waits;
    for (const int earlier : executable->nodes[number].after) {
      waits.push_back(made[static_cast<std::size_t>(earlier)]);
    }
    PASSEL_RETURN_IF_ERROR(AddNode(*executable, number, owner.graph, waits, &made[number]));
  }
  PASSEL_CUDA_TRY("instantiating a graph",
                  cudaGraphInstantiate(&executable->graph_exec, owner.graph, 0));
  PASSEL_CUDA_TRY("uploading a graph", cudaGraphUpload(executable->graph_exec, context_.stream()));
  return Synchronize(Deadline::After(std::chrono::seconds(kCopySeconds)));
}

Status CudaDevice::AddNode(const CudaExecutable& executable, std::size_t number, cudaGraph_t graph,
                           const std::vector<cudaGraphNode_t>& waits, cudaGraphNode_t* out) {
  const Node& node = executable.nodes[number];
  if (const auto* copy = std::get_if<Copy>(&node.operation)) {
    PASSEL_CUDA_TRY(node.name,
                    cudaGraphAddMemcpyNode1D(out, graph, waits.data(), waits.size(), copy->to,
                                             copy->from, copy->bytes, KindOf(copy->kind)));
    return {};
  }
  if (const auto* kernel = std::get_if<AnyKernel>(&node.operation)) {
    const KernelCall call = CallOf(*kernel);
    void* arguments[] = {const_cast<void*>(call.kernel)};  // copied by the call
    cudaKernelNodeParams params{};
    params.func = const_cast<void*>(call.function);
    params.gridDim = dim3(call.grid.blocks_x, call.grid.blocks_y, 1);
    params.blockDim = dim3(call.grid.threads, 1, 1);
    params.kernelParams = arguments;
    PASSEL_CUDA_TRY(node.name,
                    cudaGraphAddKernelNode(out, graph, waits.data(), waits.size(), &params));
    return {};
  }
  return AddMatmul(*executable.matmuls[number], node.name, graph, waits, out);
}

// What cuBLASLt queues is known to it alone, so it is captured, and becomes one node.
Status CudaDevice::AddMatmul(CublasLt::Matmul& matmul, const std::string& name, cudaGraph_t graph,
                             const std::vector<cudaGraphNode_t>& waits, cudaGraphNode_t* out) {
  PASSEL_CUDA_TRY(name,
                  cudaStreamBeginCapture(context_.stream(), cudaStreamCaptureModeThreadLocal));
  const Status queued = matmul.Run(context_.stream());
  GraphOwner child;
  const cudaError_t ended = cudaStreamEndCapture(context_.stream(), &child.graph);
  if (!queued.ok()) {
    static_cast<void>(cudaGetLastError());  // of the capture that broke off
    return queued.WithContext(name);
  }
  PASSEL_CUDA_TRY(name, ended);
  PASSEL_CUDA_TRY(name,
                  cudaGraphAddChildGraphNode(out, graph, waits.data(), waits.size(), child.graph));
  return {};
}

Status CudaDevice::Queue(const CudaExecutable& executable, std::size_t number) {
  const Node& node = executable.nodes[number];
  if (const auto* copy = std::get_if<Copy>(&node.operation)) {
    PASSEL_CUDA_TRY(node.name, cudaMemcpyAsync(copy->to, copy->from, copy->bytes,
                                               KindOf(copy->kind), context_.stream()));
    return {};
  }
  if (const auto* kernel = std::get_if<AnyKernel>(&node.operation)) {
    const KernelCall call = CallOf(*kernel);
    void* arguments[] = {const_cast<void*>(call.kernel)};
    PASSEL_CUDA_TRY(node.name, cudaLaunchKernel(
                                   call.function, dim3(call.grid.blocks_x, call.grid.blocks_y, 1),
                                   dim3(call.grid.threads, 1, 1), arguments, 0, context_.stream()));
    PASSEL_CUDA_TRY(node.name, cudaPeekAtLastError());
    return {};
  }
  return executable.matmuls[number]->Run(context_.stream()).WithContext(node.name);
}

Status CudaDevice::Launch(Executable& executable) {
  PASSEL_RETURN_IF_ERROR(context_.Enter());
  auto& mine = static_cast<CudaExecutable&>(executable);
  context_.SetLaunch(mine.name);
  if (mine.graph_exec == nullptr) {
    for (std::size_t number = 0; number < mine.nodes.size(); ++number) {
      if (Status status = Queue(mine, number); !status.ok())
        return context_.Fail(std::move(status));
    }
    return {};
  }
  cudaError_t error = cudaGraphLaunch(mine.graph_exec, context_.stream());
  if (error == cudaSuccess) error = cudaPeekAtLastError();
  if (error != cudaSuccess) {
    return context_.Fail(CudaStatus(error, mine.name, "cudaGraphLaunch", __FILE__, __LINE__));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Device>> OpenCudaDevice(const ProbedDevice& device,
                                               std::uint64_t memory_limit_bytes) {
  auto cuda = std::make_unique<CudaDevice>(device, memory_limit_bytes);
  PASSEL_RETURN_IF_ERROR(cuda->Init());
  return std::unique_ptr<Device>(std::move(cuda));
}

}  // namespace passel::cuda

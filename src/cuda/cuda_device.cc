#include "cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <sched.h>

#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "cuda/cublaslt.h"
#include "cuda/cuda_try.h"
#include "cuda/exported_memory.h"
#include "cuda/kernel_call.h"
#include "cuda/plugin_log.h"

namespace passel::cuda {
namespace {

std::string Mebibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

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

// Pauses between two looks at the device: none, then the processor, then short sleeps.
class Pause {
 public:
  void Once() {
    ++turns_;
    if (turns_ < 200) return;
    if (turns_ < 2000) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  int turns_ = 0;
};

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
      : info_(device.info), ordinal_(device.ordinal), limit_(limit) {}
  ~CudaDevice() override;

  Status Init();
  const AcceleratorInfo& info() const override { return info_; }
  Result<Memory> Allocate(std::size_t bytes) override;
  Result<Memory> AllocatePinned(std::size_t bytes) override;
  Result<Memory> Register(void* begin, std::size_t bytes) override;
  Result<Memory> CreateShared(std::size_t bytes, FileDescriptor* fd) override;
  Result<Memory> ImportShared(int fd, std::size_t bytes) override;
  Status CopyIn(void* to, const void* from_host, std::size_t bytes) override;
  Status CopyOut(void* to_host, const void* from, std::size_t bytes) override;
  Result<std::unique_ptr<Executable>> Prepare(const Plan& plan, How how) override;
  Status Launch(Executable& executable) override;
  Status Health() override;
  Status Synchronize(Deadline deadline) override;

 protected:
  void Release(Deleter::Kind kind, void* memory) override;

 private:
  struct Block {
    std::size_t bytes = 0;
    Deleter::Kind kind = Deleter::Kind::kDevice;
    ExportedMemory exported = {};  // kShared
  };

  // Every call begins with this: a thread's current device is its own affair.
  Status Enter() {
    PASSEL_RETURN_IF_ERROR(failed_);
    PASSEL_CUDA_TRY("choosing the GPU", cudaSetDevice(ordinal_));
    return {};
  }
  // Keeps the first error of the GPU, and returns it.
  Status Fail(Status status) {
    if (failed_.ok()) {
      failed_ = std::move(status);
      PluginLogWarning("GPU fault: " + failed_.message());
    }
    return failed_;
  }
  // Only what a launch or the device itself broke is kept; a refused allocation is not.
  Status KeepIfLost(Status status) {
    return status.code() == Code::kUnavailable ? Fail(std::move(status)) : std::move(status);
  }
  // What this task may use, if it may use so much more.
  Status CheckLimit(std::size_t bytes) const;
  Memory Keep(const ExportedMemory& exported);
  Status CheckNode(const Node& node) const;
  Status CheckKernel(const Node& node, const AnyKernel& kernel) const;
  bool IsReachable(const void* host, std::size_t bytes) const;
  Status PrepareMatmul(const Node& node, const LargeGemm& gemm, CudaExecutable* executable);
  Status BuildGraph(CudaExecutable* executable);
  Status AddNode(const CudaExecutable& executable, std::size_t number, cudaGraph_t graph,
                 const std::vector<cudaGraphNode_t>& waits, cudaGraphNode_t* out);
  Status AddMatmul(CublasLt::Matmul& matmul, const std::string& name, cudaGraph_t graph,
                   const std::vector<cudaGraphNode_t>& waits, cudaGraphNode_t* out);
  Status Queue(const CudaExecutable& executable, std::size_t number);
  Status CopyNow(const char* what, void* to, const void* from, std::size_t bytes,
                 cudaMemcpyKind kind);

  AcceleratorInfo info_;
  const int ordinal_;
  const std::uint64_t limit_;
  std::uint64_t used_ = 0;  // bytes handed out by Allocate()
  cudaStream_t stream_ = nullptr;
  std::map<std::uintptr_t, Block> blocks_;
  Status failed_;
  std::string last_launch_ = "nothing";
  // In the order of their making: the handle goes before its workspace.
  Memory workspace_;
  std::unique_ptr<CublasLt> cublaslt_;
};

Status CudaDevice::Init() {
  const cudaError_t error = cudaSetDevice(ordinal_);  // makes the context
  if (error == cudaErrorDevicesUnavailable) {
    static_cast<void>(cudaGetLastError());
    return FailedPrecondition(
        fmt::format("{} ({}) is held by another process (compute mode 'exclusive'): use another "
                    "GPU, wait, or have the mode set to 'default' (nvidia-smi -c 0)",
                    info_.name, info_.uuid));
  }
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return ResourceExhausted(
        fmt::format("{} ({}) has no memory left for another process: end some of those that "
                    "nvidia-smi lists, or use another GPU",
                    info_.name, info_.uuid));
  }
  PASSEL_CUDA_TRY("making a context", error);
  PASSEL_CUDA_TRY("making a stream", cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  std::size_t free = 0;
  std::size_t total = 0;
  PASSEL_CUDA_TRY("asking for free memory", cudaMemGetInfo(&free, &total));
  info_.free_bytes = free;
  return {};
}

CudaDevice::~CudaDevice() {
  cublaslt_.reset();
  workspace_.reset();
  // Memory that its owner abandoned may still be written to, and the stream with it.
  if (stream_ == nullptr || !failed_.ok() || !blocks_.empty()) return;
  if (const cudaError_t error = cudaStreamDestroy(stream_); error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    if (!IsGone(error)) {
      PluginLogWarning("the GPU's stream was not given back: " + CudaErrorText(error));
    }
  }
}

Status CudaDevice::CheckLimit(std::size_t bytes) const {
  if (limit_ != 0 && (bytes > limit_ || used_ > limit_ - bytes)) {
    return ResourceExhausted(
        fmt::format("{} more of GPU memory are needed, {} are in use, and this task may use {}: "
                    "raise --per_process_gpu_memory_fraction, or train a smaller model or data set",
                    Mebibytes(bytes), Mebibytes(used_), Mebibytes(limit_)));
  }
  return {};
}

Result<Device::Memory> CudaDevice::Allocate(std::size_t bytes) {
  PASSEL_RETURN_IF_ERROR(Enter());
  PASSEL_CHECK(bytes > 0, "an allocation has at least one byte");
  PASSEL_RETURN_IF_ERROR(CheckLimit(bytes));
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    std::size_t free = 0;
    std::size_t total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) static_cast<void>(cudaGetLastError());
    return ResourceExhausted(
        fmt::format("{} more of GPU memory are needed, but {} has {} free of {}: end other "
                    "processes on it, or train a smaller model or data set",
                    Mebibytes(bytes), info_.name, Mebibytes(free), Mebibytes(total)));
  }
  if (error != cudaSuccess) {
    return KeepIfLost(CudaStatus(error, "allocating GPU memory", "cudaMalloc", __FILE__, __LINE__));
  }
  blocks_[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, Deleter::Kind::kDevice};
  used_ += bytes;
  Memory owner(memory, Deleter{this, Deleter::Kind::kDevice});
  const cudaError_t cleared = cudaMemsetAsync(memory, 0, bytes, stream_);
  if (cleared != cudaSuccess) {
    return KeepIfLost(
        CudaStatus(cleared, "clearing GPU memory", "cudaMemsetAsync", __FILE__, __LINE__));
  }
  PASSEL_RETURN_IF_ERROR(Synchronize(Deadline::After(std::chrono::seconds(kCopySeconds))));
  return owner;
}

Result<Device::Memory> CudaDevice::AllocatePinned(std::size_t bytes) {
  PASSEL_RETURN_IF_ERROR(Enter());
  PASSEL_CHECK(bytes > 0, "an allocation has at least one byte");
  void* memory = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return ResourceExhausted(
        fmt::format("{} of page-locked host memory are needed, and the driver has none: free host "
                    "memory, or raise the container's memory limit",
                    Mebibytes(bytes)));
  }
  if (error != cudaSuccess) {
    return KeepIfLost(
        CudaStatus(error, "allocating pinned memory", "cudaHostAlloc", __FILE__, __LINE__));
  }
  std::memset(memory, 0, bytes);
  blocks_[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, Deleter::Kind::kPinned};
  return Memory(memory, Deleter{this, Deleter::Kind::kPinned});
}

Result<Device::Memory> CudaDevice::Register(void* begin, std::size_t bytes) {
  PASSEL_RETURN_IF_ERROR(Enter());
  PASSEL_CHECK(bytes > 0, "a registration has at least one byte");
  const cudaError_t error =
      cudaHostRegister(begin, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    const std::string text = fmt::format("the driver does not register {} of host memory: {}",
                                         Mebibytes(bytes), CudaErrorText(error));
    if (IsSticky(error)) return Fail(Unavailable(text));
    return error == cudaErrorMemoryAllocation ? ResourceExhausted(text) : FailedPrecondition(text);
  }
  blocks_[reinterpret_cast<std::uintptr_t>(begin)] = {bytes, Deleter::Kind::kRegistration};
  Memory owner(begin, Deleter{this, Deleter::Kind::kRegistration});
  // Kernels and copies name host memory by the host's address.
  void* device_address = nullptr;
  if (cudaHostGetDevicePointer(&device_address, begin, 0) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    device_address = nullptr;
  }
  if (device_address != begin) {
    return FailedPrecondition(fmt::format(
        "the driver gives {} of registered host memory another address", Mebibytes(bytes)));
  }
  return owner;
}

Device::Memory CudaDevice::Keep(const ExportedMemory& exported) {
  blocks_[reinterpret_cast<std::uintptr_t>(exported.data)] = {exported.bytes,
                                                              Deleter::Kind::kShared, exported};
  return Memory(exported.data, Deleter{this, Deleter::Kind::kShared});
}

Result<Device::Memory> CudaDevice::CreateShared(std::size_t bytes, FileDescriptor* fd) {
  PASSEL_RETURN_IF_ERROR(Enter());
  PASSEL_RETURN_IF_ERROR(CheckLimit(bytes));
  if (info_.uuid.starts_with("MIG-")) {
    return FailedPrecondition(fmt::format(
        "{} is a MIG instance, whose memory processes cannot share: use --arena host", info_.uuid));
  }
  PASSEL_ASSIGN_OR_RETURN(const ExportedMemory exported, CreateExported(ordinal_, bytes, fd));
  Memory owner = Keep(exported);
  const cudaError_t cleared = cudaMemsetAsync(owner.get(), 0, bytes, stream_);
  if (cleared != cudaSuccess) {
    return KeepIfLost(
        CudaStatus(cleared, "clearing GPU memory", "cudaMemsetAsync", __FILE__, __LINE__));
  }
  PASSEL_RETURN_IF_ERROR(Synchronize(Deadline::After(std::chrono::seconds(kCopySeconds))));
  return owner;
}

Result<Device::Memory> CudaDevice::ImportShared(int fd, std::size_t bytes) {
  PASSEL_RETURN_IF_ERROR(Enter());
  PASSEL_ASSIGN_OR_RETURN(const ExportedMemory exported, ImportExported(ordinal_, fd, bytes));
  return Keep(exported);
}

void CudaDevice::Release(Deleter::Kind kind, void* memory) {
  const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(memory));
  PASSEL_CHECK(found != blocks_.end() && found->second.kind == kind,
               "what is given back was handed out by this device");
  const std::size_t bytes = found->second.bytes;
  const ExportedMemory exported = found->second.exported;
  blocks_.erase(found);
  if (kind == Deleter::Kind::kDevice) used_ -= bytes;
  // A lost context keeps its memory until the process ends; a running launch may still write.
  Status idle = Synchronize(Deadline::After(std::chrono::seconds(kTearDownSeconds)));
  if (!idle.ok()) {
    if (idle.code() == Code::kDeadlineExceeded) {
      PluginLogWarning(fmt::format(
          "the GPU still works after {} s: {} of its memory are left to the end of this process",
          kTearDownSeconds, Mebibytes(bytes)));
    }
    return;
  }
  cudaError_t error = cudaSuccess;
  switch (kind) {
    case Deleter::Kind::kDevice:
      error = cudaFree(memory);
      break;
    case Deleter::Kind::kPinned:
      error = cudaFreeHost(memory);
      break;
    case Deleter::Kind::kRegistration:
      error = cudaHostUnregister(memory);
      break;
    case Deleter::Kind::kShared:
      if (const std::string_view problem = UnmapExported(exported); !problem.empty()) {
        PluginLogWarning(fmt::format("{} of shared GPU memory were not unmapped: {}",
                                     Mebibytes(bytes), problem));
      }
      return;
  }
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  if (!IsGone(error)) {
    PluginLogWarning(fmt::format("{} of GPU memory were not given back: {}", Mebibytes(bytes),
                                 CudaErrorText(error)));
  }
}

Status CudaDevice::CopyNow(const char* what, void* to, const void* from, std::size_t bytes,
                           cudaMemcpyKind kind) {
  PASSEL_RETURN_IF_ERROR(Enter());
  if (bytes == 0) return {};
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, stream_);
  if (error != cudaSuccess) {
    return KeepIfLost(CudaStatus(error, what, "cudaMemcpyAsync", __FILE__, __LINE__));
  }
  return Synchronize(Deadline::After(std::chrono::seconds(kCopySeconds))).WithContext(what);
}

Status CudaDevice::CopyIn(void* to, const void* from_host, std::size_t bytes) {
  return CopyNow("copying to the GPU", to, from_host, bytes, cudaMemcpyHostToDevice);
}

Status CudaDevice::CopyOut(void* to_host, const void* from, std::size_t bytes) {
  return CopyNow("copying from the GPU", to_host, from, bytes, cudaMemcpyDeviceToHost);
}

bool CudaDevice::IsReachable(const void* host, std::size_t bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(host);
  auto next = blocks_.upper_bound(begin);
  if (next == blocks_.begin()) return false;
  const auto& [start, block] = *--next;
  const bool of_host =
      block.kind == Deleter::Kind::kPinned || block.kind == Deleter::Kind::kRegistration;
  return of_host && begin - start <= block.bytes && bytes <= block.bytes - (begin - start);
}

// An asynchronous copy from or to pageable memory waits where it should not, or does worse.
Status CudaDevice::CheckNode(const Node& node) const {
  if (const auto* copy = std::get_if<Copy>(&node.operation)) {
    const void* host = copy->kind == Copy::Kind::kHostToDevice   ? copy->from
                       : copy->kind == Copy::Kind::kDeviceToHost ? copy->to
                                                                 : nullptr;
    if (host != nullptr && !IsReachable(host, copy->bytes)) {
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

Status CudaDevice::PrepareMatmul(const Node& node, const LargeGemm& gemm,
                                 CudaExecutable* executable) {
  if (cublaslt_ == nullptr) {
    PASSEL_ASSIGN_OR_RETURN(workspace_, Allocate(CublasLt::kWorkspaceBytes));
    PASSEL_ASSIGN_OR_RETURN(cublaslt_, CublasLt::Open(workspace_.get()));
  }
  PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<CublasLt::Matmul> matmul, cublaslt_->Prepare(gemm));
  PluginLogInfo(node.name + ", " + matmul->Describe());
  // One run into scratch loads what the library loads on first use, outside of any capture.
  {
    PASSEL_ASSIGN_OR_RETURN(Memory scratch, Allocate(gemm.m * gemm.ldc * sizeof(float)));
    PASSEL_RETURN_IF_ERROR(KeepIfLost(matmul->Run(stream_, static_cast<float*>(scratch.get()))));
    PASSEL_RETURN_IF_ERROR(Synchronize(Deadline::After(std::chrono::seconds(kCopySeconds))));
  }
  executable->matmuls.push_back(std::move(matmul));
  return {};
}

Result<std::unique_ptr<Device::Executable>> CudaDevice::Prepare(const Plan& plan, How how) {
  PASSEL_RETURN_IF_ERROR(Enter());
  // The scratch run below reads what a running launch may write.
  PASSEL_RETURN_IF_ERROR(Synchronize(Deadline::After(std::chrono::seconds(kCopySeconds))));
  auto executable = std::make_unique<CudaExecutable>(plan);
  for (const Node& node : executable->nodes) {
    PASSEL_RETURN_IF_ERROR(CheckNode(node));
    if (const auto* gemm = std::get_if<LargeGemm>(&node.operation)) {
      PASSEL_RETURN_IF_ERROR(PrepareMatmul(node, *gemm, executable.get()).WithContext(node.name));
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
  PASSEL_CUDA_TRY("uploading a graph", cudaGraphUpload(executable->graph_exec, stream_));
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
  PASSEL_CUDA_TRY(name, cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  const Status queued = matmul.Run(stream_);
  GraphOwner child;
  const cudaError_t ended = cudaStreamEndCapture(stream_, &child.graph);
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
    PASSEL_CUDA_TRY(
        node.name, cudaMemcpyAsync(copy->to, copy->from, copy->bytes, KindOf(copy->kind), stream_));
    return {};
  }
  if (const auto* kernel = std::get_if<AnyKernel>(&node.operation)) {
    const KernelCall call = CallOf(*kernel);
    void* arguments[] = {const_cast<void*>(call.kernel)};
    PASSEL_CUDA_TRY(node.name,
                    cudaLaunchKernel(call.function, dim3(call.grid.blocks_x, call.grid.blocks_y, 1),
                                     dim3(call.grid.threads, 1, 1), arguments, 0, stream_));
    PASSEL_CUDA_TRY(node.name, cudaPeekAtLastError());
    return {};
  }
  return executable.matmuls[number]->Run(stream_, nullptr).WithContext(node.name);
}

Status CudaDevice::Launch(Executable& executable) {
  PASSEL_RETURN_IF_ERROR(Enter());
  auto& mine = static_cast<CudaExecutable&>(executable);
  last_launch_ = mine.name;
  if (mine.graph_exec == nullptr) {
    for (std::size_t number = 0; number < mine.nodes.size(); ++number) {
      if (Status status = Queue(mine, number); !status.ok()) return Fail(std::move(status));
    }
    return {};
  }
  cudaError_t error = cudaGraphLaunch(mine.graph_exec, stream_);
  if (error == cudaSuccess) error = cudaPeekAtLastError();
  if (error != cudaSuccess) {
    return Fail(CudaStatus(error, mine.name, "cudaGraphLaunch", __FILE__, __LINE__));
  }
  return {};
}

Status CudaDevice::Health() {
  PASSEL_RETURN_IF_ERROR(Enter());
  const cudaError_t error = cudaStreamQuery(stream_);
  if (error == cudaSuccess) return {};
  if (error == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return {};
  }
  return Fail(CudaStatus(error, last_launch_, "cudaStreamQuery", __FILE__, __LINE__));
}

Status CudaDevice::Synchronize(Deadline deadline) {
  PASSEL_RETURN_IF_ERROR(Enter());
  Pause pause;
  while (true) {
    const cudaError_t error = cudaStreamQuery(stream_);
    if (error == cudaSuccess) return {};
    if (error != cudaErrorNotReady) {
      return Fail(CudaStatus(error, last_launch_, "cudaStreamQuery", __FILE__, __LINE__));
    }
    static_cast<void>(cudaGetLastError());
    if (deadline.Expired()) {
      return DeadlineExceeded(fmt::format("the GPU has not finished {}", last_launch_));
    }
    pause.Once();
  }
}

}  // namespace

Result<std::unique_ptr<Device>> OpenCudaDevice(const ProbedDevice& device,
                                               std::uint64_t memory_limit_bytes) {
  auto cuda = std::make_unique<CudaDevice>(device, memory_limit_bytes);
  PASSEL_RETURN_IF_ERROR(cuda->Init());
  return std::unique_ptr<Device>(std::move(cuda));
}

}  // namespace passel::cuda

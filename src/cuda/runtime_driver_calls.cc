#include "cuda/runtime_driver_calls.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "cuda/cuda_try.h"
#include "cuda/device_uuid.h"

namespace passel::cuda {
namespace {

// Takes the error, so that no later call reports it.
DriverAnswer Answer(cudaError_t error) {
  if (error == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  return {static_cast<int>(error), CudaErrorText(error)};
}

UuidBytes CopyOf(const char (&bytes)[16]) {
  UuidBytes copy{};
  std::copy(std::begin(bytes), std::end(bytes), copy.begin());
  return copy;
}

// The UUID of the device itself, also where it is a MIG instance.
std::optional<UuidBytes> OwnUuid(int ordinal) {
  void* symbol = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuDeviceGetUuid", &symbol, 11040,
                                                             cudaEnableDefault, &found);
#else
  const cudaError_t error =
      cudaGetDriverEntryPoint("cuDeviceGetUuid", &symbol, cudaEnableDefault, &found);
#endif
  if (!Answer(error).ok() || found != cudaDriverEntryPointSuccess || symbol == nullptr) {
    return std::nullopt;
  }
  CUuuid uuid;
  if (reinterpret_cast<CUresult (*)(CUuuid*, CUdevice)>(symbol)(&uuid, ordinal) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  return CopyOf(uuid.bytes);
}

bool Attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  return Answer(cudaDeviceGetAttribute(&value, attribute, device)).ok() && value != 0;
}

// cudaDevAttrMpsEnabled, which not all headers of CUDA 12 have.
constexpr int kMpsEnabled = 133;

bool DriverAttribute(CUdevice_attribute attribute, int device) {
  return Attribute(static_cast<cudaDeviceAttr>(attribute), device);
}

}  // namespace

DriverAnswer RuntimeDriverCalls::DriverVersion(int* version) {
  return Answer(cudaDriverGetVersion(version));
}

int RuntimeDriverCalls::RuntimeVersion() { return CUDART_VERSION; }

std::string RuntimeDriverCalls::DriverRelease() {
  std::ifstream file("/proc/driver/nvidia/version");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return ParseDriverRelease(text);
}

DriverAnswer RuntimeDriverCalls::DeviceCount(int* count) {
  return Answer(cudaGetDeviceCount(count));
}

DriverAnswer RuntimeDriverCalls::Facts(int device, DeviceFacts* facts) {
  cudaDeviceProp properties{};
  const DriverAnswer answer = Answer(cudaGetDeviceProperties(&properties, device));
  if (!answer.ok()) return answer;
  facts->name = properties.name;
  DeviceUuidFacts uuid;
  uuid.runtime = CopyOf(properties.uuid.bytes);
  uuid.driver = OwnUuid(device);
  uuid.ordinal = device;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) uuid.visible = visible;
  facts->uuid = DeviceUuid(uuid);
  facts->compute_capability = properties.major * 10 + properties.minor;
  facts->memory_bytes = properties.totalGlobalMem;
  facts->multiprocessors = properties.multiProcessorCount;
  int mode = 0;
  facts->prohibited = Answer(cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, device)).ok() &&
                      mode == cudaComputeModeProhibited;
  facts->unified_addressing = properties.unifiedAddressing != 0;
  facts->host_native_atomics = Attribute(cudaDevAttrHostNativeAtomicSupported, device);
  facts->virtual_memory_management =
      DriverAttribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
  facts->mps = Attribute(static_cast<cudaDeviceAttr>(kMpsEnabled), device);
  int count = 0;
  if (!DeviceCount(&count).ok()) count = 0;
  for (int peer = 0; peer < count && !facts->peer_access; ++peer) {
    int can = 0;
    facts->peer_access =
        peer != device && Answer(cudaDeviceCanAccessPeer(&can, device, peer)).ok() && can != 0;
  }
  return {};
}

DriverAnswer RuntimeDriverCalls::Peer(int device, int peer, PeerFacts* facts) {
  int can_access = 0;
  int access_enabled = 0;
  int native_atomics = 0;
  for (const cudaError_t error :
       {cudaDeviceCanAccessPeer(&can_access, device, peer),
        cudaDeviceGetP2PAttribute(&access_enabled, cudaDevP2PAttrAccessSupported, device, peer),
        cudaDeviceGetP2PAttribute(&native_atomics, cudaDevP2PAttrNativeAtomicSupported, device,
                                  peer)}) {
    const DriverAnswer answer = Answer(error);
    if (!answer.ok()) return answer;
  }
  *facts = {can_access != 0, access_enabled != 0, native_atomics != 0};
  return {};
}

}  // namespace passel::cuda

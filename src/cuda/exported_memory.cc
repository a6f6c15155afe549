#include "cuda/exported_memory.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "cuda/cuda_try.h"

namespace passel::cuda {
namespace {

// The driver numbers its errors as the runtime does.
static_assert(ClassOf(CUDA_ERROR_OUT_OF_MEMORY) == ErrorClass::kMemory);
static_assert(ClassOf(CUDA_ERROR_MPS_SERVER_NOT_READY) == ErrorClass::kLater);
static_assert(ClassOf(CUDA_ERROR_ILLEGAL_ADDRESS) == ErrorClass::kLost);
static_assert(ClassOf(CUDA_ERROR_UNKNOWN) == ErrorClass::kLost);

// What is used of the driver, and its name here.
#define PASSEL_DRIVER_FUNCTIONS(F)                 \
  F(cuGetErrorName, error_name)                    \
  F(cuDeviceGetAttribute, attribute)               \
  F(cuMemGetAllocationGranularity, granularity)    \
  F(cuMemCreate, create)                           \
  F(cuMemRelease, release)                         \
  F(cuMemExportToShareableHandle, export_handle)   \
  F(cuMemImportFromShareableHandle, import_handle) \
  F(cuMemAddressReserve, reserve)                  \
  F(cuMemAddressFree, unreserve)                   \
  F(cuMemMap, map)                                 \
  F(cuMemUnmap, unmap)                             \
  F(cuMemSetAccess, set_access)

// Null where the driver has no such function.
struct Driver {
#define PASSEL_MEMBER(function, name) decltype(&function) name = nullptr;
  PASSEL_DRIVER_FUNCTIONS(PASSEL_MEMBER)
#undef PASSEL_MEMBER
  bool complete = true;
};

template <typename F>
void Find(const char* name, F* function, bool* complete) {
  void* symbol = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  // All of them are as old as CUDA 10.2.
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &symbol, 12000, cudaEnableDefault, &found);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &symbol, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  if (error == cudaSuccess && found == cudaDriverEntryPointSuccess && symbol != nullptr) {
    *function = reinterpret_cast<F>(symbol);
  } else {
    *complete = false;
  }
}

const Driver& TheDriver() {
  static const Driver driver = [] {
    Driver d;
#define PASSEL_FIND(function, name) Find(#function, &d.name, &d.complete);
    PASSEL_DRIVER_FUNCTIONS(PASSEL_FIND)
#undef PASSEL_FIND
    return d;
  }();
  return driver;
}

const char* NameOf(CUresult error) {
  const char* name = nullptr;
  if (TheDriver().error_name(error, &name) != CUDA_SUCCESS || name == nullptr) return "an error";
  return name;
}

Status DriverStatus(CUresult error, const char* call) {
  if (error == CUDA_SUCCESS) return {};
  return StatusOfError(error,
                       fmt::format("sharing GPU memory: {} failed with {}", call, NameOf(error)));
}

CUmemAllocationProp Properties(int ordinal) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  return properties;
}

// For accesses of device `ordinal`. Takes the handle over, also when it fails.
Result<ExportedMemory> Map(int ordinal, CUmemGenericAllocationHandle handle, std::size_t bytes) {
  const Driver& driver = TheDriver();
  CUdeviceptr at = 0;
  CUresult error = driver.reserve(&at, bytes, 0, 0, 0);
  if (error != CUDA_SUCCESS) {
    static_cast<void>(driver.release(handle));
    return DriverStatus(error, "cuMemAddressReserve");
  }
  const char* call = "cuMemMap";
  error = driver.map(at, bytes, 0, handle, 0);
  if (error == CUDA_SUCCESS) {
    CUmemAccessDesc access{};
    access.location = Properties(ordinal).location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    call = "cuMemSetAccess";
    error = driver.set_access(at, bytes, &access, 1);
    if (error != CUDA_SUCCESS) static_cast<void>(driver.unmap(at, bytes));
  }
  if (error != CUDA_SUCCESS) {
    static_cast<void>(driver.unreserve(at, bytes));
    static_cast<void>(driver.release(handle));
    return DriverStatus(error, call);
  }
  return ExportedMemory{reinterpret_cast<void*>(static_cast<std::uintptr_t>(at)), bytes, handle};
}

Result<std::size_t> WholeGranules(int ordinal, std::size_t bytes) {
  PASSEL_ASSIGN_OR_RETURN(const std::size_t granule, ExportGranule(ordinal));
  return (bytes + granule - 1) / granule * granule;
}

}  // namespace

Result<std::size_t> ExportGranule(int ordinal) {
  const Driver& driver = TheDriver();
  const auto has = [&](CUdevice_attribute attribute) {
    int value = 0;
    return driver.attribute(&value, attribute, ordinal) == CUDA_SUCCESS && value != 0;
  };
  if (!driver.complete || !has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
      !has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
    return FailedPrecondition(
        "this GPU or its driver cannot hand its memory to other processes as a file descriptor: "
        "use --arena host");
  }
  const CUmemAllocationProp properties = Properties(ordinal);
  std::size_t granule = 0;
  PASSEL_RETURN_IF_ERROR(
      DriverStatus(driver.granularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                   "cuMemGetAllocationGranularity"));
  return granule;
}

Result<ExportedMemory> CreateExported(int ordinal, std::size_t bytes, FileDescriptor* fd) {
  PASSEL_ASSIGN_OR_RETURN(const std::size_t whole, WholeGranules(ordinal, bytes));
  const Driver& driver = TheDriver();
  const CUmemAllocationProp properties = Properties(ordinal);
  CUmemGenericAllocationHandle handle = 0;
  PASSEL_RETURN_IF_ERROR(
      DriverStatus(driver.create(&handle, whole, &properties, 0), "cuMemCreate"));
  int number = -1;
  const CUresult error =
      driver.export_handle(&number, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (error != CUDA_SUCCESS) {
    static_cast<void>(driver.release(handle));
    return DriverStatus(error, "cuMemExportToShareableHandle");
  }
  FileDescriptor exported(number);
  PASSEL_ASSIGN_OR_RETURN(const ExportedMemory memory, Map(ordinal, handle, whole));
  *fd = std::move(exported);
  return memory;
}

Result<ExportedMemory> ImportExported(int ordinal, int home, int fd, std::size_t bytes) {
  // Both need it; the granules are those of the device that made the memory.
  PASSEL_RETURN_IF_ERROR(ExportGranule(ordinal).status());
  PASSEL_ASSIGN_OR_RETURN(const std::size_t whole, WholeGranules(home, bytes));
  CUmemGenericAllocationHandle handle = 0;
  // The driver takes the number of the descriptor for a pointer.
  void* const number = reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd));
  PASSEL_RETURN_IF_ERROR(DriverStatus(
      TheDriver().import_handle(&handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "cuMemImportFromShareableHandle"));
  return Map(ordinal, handle, whole);
}

const char* UnmapExported(const ExportedMemory& memory) {
  const Driver& driver = TheDriver();
  const auto at = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory.data));
  const CUresult results[] = {driver.unmap(at, memory.bytes), driver.unreserve(at, memory.bytes),
                              driver.release(memory.handle)};
  for (const CUresult result : results) {
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_DEINITIALIZED) return NameOf(result);
  }
  return "";
}

}  // namespace passel::cuda

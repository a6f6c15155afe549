// nvml_internal.h - the few functions of NVIDIA's management library that are used, declared here
// because the library comes with the driver and its header with neither driver nor toolkit. The
// names with a version suffix have had these parameters since driver 418 or, for MIG, 450.

#pragma once

#include <cstddef>

namespace passel::nvml {

using Device = void*;
using Return = int;

inline constexpr Return kSuccess = 0;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kDriverNotLoaded = 9;

inline constexpr unsigned kTextBytes = 96;  // the longest of names, versions and UUIDs

struct Memory {
  unsigned long long total, free, used;  // bytes
};
static_assert(sizeof(Memory) == 24);

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device;
  unsigned pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68 && offsetof(PciInfo, domain) == 16 &&
              offsetof(PciInfo, bus_id) == 36);

// nvmlGpuTopologyLevel_t
enum Level : int {
  kInternal = 0,
  kSingle = 10,
  kMultiple = 20,
  kHostBridge = 30,
  kNode = 40,
  kSystem = 50
};
// nvmlGpuP2PCapsIndex_t
enum Peer : int { kRead = 0, kWrite = 1, kNvlink = 2, kAtomics = 3 };
inline constexpr int kPeerOk = 0;  // nvmlGpuP2PStatus_t

/// Null where the library lacks a function.
struct Functions {
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  const char* (*error_string)(Return) = nullptr;
  Return (*driver_version)(char*, unsigned) = nullptr;
  Return (*cuda_version)(int*) = nullptr;
  Return (*count)(unsigned*) = nullptr;
  Return (*by_index)(unsigned, Device*) = nullptr;
  Return (*uuid)(Device, char*, unsigned) = nullptr;
  Return (*name)(Device, char*, unsigned) = nullptr;
  Return (*memory)(Device, Memory*) = nullptr;
  Return (*capability)(Device, int*, int*) = nullptr;
  Return (*pci)(Device, PciInfo*) = nullptr;
  Return (*mig_mode)(Device, unsigned*, unsigned*) = nullptr;
  Return (*max_mig_devices)(Device, unsigned*) = nullptr;
  Return (*mig_device)(Device, unsigned, Device*) = nullptr;
  Return (*common_ancestor)(Device, Device, int*) = nullptr;
  Return (*peer_status)(Device, Device, int, int*) = nullptr;
};

}  // namespace passel::nvml

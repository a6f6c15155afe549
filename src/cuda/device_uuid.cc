#include "cuda/device_uuid.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cctype>
#include <cstddef>
#include <string_view>

namespace passel::cuda {
namespace {

std::string Text(std::string_view prefix, const UuidBytes& bytes) {
  std::string text(prefix);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(bytes[i]));
  }
  return text;
}

// The entry of device `ordinal` begins with "MIG-".
bool SaysInstance(std::string_view visible, int ordinal) {
  for (int i = 0; i < ordinal; ++i) {
    const std::size_t comma = visible.find(',');
    if (comma == std::string_view::npos) return false;
    visible.remove_prefix(comma + 1);
  }
  while (!visible.empty() && std::isspace(static_cast<unsigned char>(visible.front())) != 0) {
    visible.remove_prefix(1);
  }
  return visible.starts_with("MIG-");
}

}  // namespace

std::string DeviceUuid(const DeviceUuidFacts& facts) {
  const UuidBytes own = facts.driver.value_or(facts.runtime);
  std::string instance = Text("MIG-", own);
  if (own != facts.runtime || SaysInstance(facts.visible, facts.ordinal) ||
      IsMigInstance(facts.nvml, instance)) {
    return instance;
  }
  return Text("GPU-", own);
}

bool IsMigInstance(const std::string& library, const std::string& uuid) {
  void* const nvml = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (nvml == nullptr) return false;
  // Declared here: the library comes with the driver and its header with neither driver nor
  // toolkit.
  using Handle = void*;
  const auto init = reinterpret_cast<int (*)()>(::dlsym(nvml, "nvmlInit_v2"));
  const auto shutdown = reinterpret_cast<int (*)()>(::dlsym(nvml, "nvmlShutdown"));
  const auto by_uuid =
      reinterpret_cast<int (*)(const char*, Handle*)>(::dlsym(nvml, "nvmlDeviceGetHandleByUUID"));
  const auto is_mig =
      reinterpret_cast<int (*)(Handle, unsigned*)>(::dlsym(nvml, "nvmlDeviceIsMigDeviceHandle"));
  if (init == nullptr || shutdown == nullptr || by_uuid == nullptr || is_mig == nullptr ||
      init() != 0) {
    return false;
  }
  Handle device = nullptr;
  unsigned yes = 0;
  const bool found = by_uuid(uuid.c_str(), &device) == 0 && is_mig(device, &yes) == 0 && yes != 0;
  static_cast<void>(shutdown());
  return found;
}

}  // namespace passel::cuda

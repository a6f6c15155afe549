#include "fabric/libfabric/network.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "fabric/libfabric/network_impl.h"

namespace passel::fabric {
namespace {

constexpr std::size_t kMessagesUnderWay = 64;
constexpr std::uint32_t kVersion = FI_VERSION(1, 17);

// The first address of the interface; IPv4 before IPv6, and none that holds on one link alone.
Result<std::string> AddressOf(const std::string& interface) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return ErrnoStatus(errno, "listing the interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  std::string found, names;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::string name = each->ifa_name;
    if (name != interface) {
      if (names.find(name) == std::string::npos) names += (names.empty() ? "" : ", ") + name;
      continue;
    }
    char text[INET6_ADDRSTRLEN] = "";
    if (family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
      ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
      return std::string(text);
    }
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) || !found.empty()) continue;
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    found = text;
  }
  if (!found.empty()) return found;
  return NotFound(
      fmt::format("this host has no interface '{}' with an address: name one of the others, {}",
                  interface, names));
}

Status CheckAddress(const std::string& address) {
  in6_addr room{};
  if (::inet_pton(AF_INET, address.c_str(), &room) == 1 ||
      ::inet_pton(AF_INET6, address.c_str(), &room) == 1) {
    return {};
  }
  return InvalidArgument(fmt::format(
      "'{}' is no address: write an IPv4 or IPv6 address of this host in numbers", address));
}

// libfabric would find out at the first endpoint.
Status CheckIsHere(const std::string& address) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  const bool is_v4 = ::inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1;
  if (!is_v4) (void)::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr);
  const auto* const where =
      is_v4 ? reinterpret_cast<const sockaddr*>(&v4) : reinterpret_cast<const sockaddr*>(&v6);
  const FileDescriptor socket(::socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.valid() && ::bind(socket.get(), where, is_v4 ? sizeof v4 : sizeof v6) == 0) return {};
  return NotFound(fmt::format(
      "no interface of this host has the address {} (ip addr lists those that are there)",
      address));
}

// "": any.
Result<Info> HintsFor(const std::string& provider) {
  Info hints(fi_allocinfo());
  if (hints == nullptr) return ResourceExhausted("libfabric has no memory for hints");
  hints->caps = FI_MSG | FI_TAGGED;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  // Providers have buffers for so many messages: one pipe has few under way.
  hints->tx_attr->size = hints->rx_attr->size = kMessagesUnderWay;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  if (!provider.empty()) hints->fabric_attr->prov_name = ::strdup(provider.c_str());
  return hints;
}

std::string WholeName(const std::string& provider) {
  return provider == "tcp" ? "tcp;ofi_rxm" : provider;
}

Result<Info> FindInfo(const NetworkOptions& options) {
  PASSEL_ASSIGN_OR_RETURN(const Info hints, HintsFor(options.provider));
  const char* const node = options.address.empty() ? nullptr : options.address.c_str();
  fi_info* found = nullptr;
  const int error =
      fi_getinfo(kVersion, node, nullptr, node == nullptr ? 0 : FI_SOURCE, hints.get(), &found);
  if (error != 0) {
    return FabricStatus(error, fmt::format("libfabric has no provider '{}' for address '{}' here "
                                           "(fi_info -l lists the providers)",
                                           options.provider, options.address));
  }
  return Info(found);
}

}  // namespace

void SetProviderDefaults() {
  constexpr std::pair<const char*, const char*> kDefaults[] = {
      {"FI_OFI_RXM_USE_SRX", "0"},  // with it the buffers are made before anybody connects
      {"FI_OFI_RXM_MSG_RX_SIZE", "32"},
      {"FI_OFI_RXM_MSG_TX_SIZE", "32"},
      {"FI_OFI_RXM_BUFFER_SIZE", "4096"},
      {"FI_OFI_RXM_CM_PROGRESS_INTERVAL", "1000"},  // us: connects sooner
  };
  for (const auto& [name, value] : kDefaults) ::setenv(name, value, /*replace=*/0);
}

Result<std::string> CheckProvider(const std::string& provider) {
  PASSEL_ASSIGN_OR_RETURN(const Info hints, HintsFor(WholeName(provider)));
  fi_info* found = nullptr;
  if (fi_getinfo(kVersion, nullptr, nullptr, 0, hints.get(), &found) == 0) {
    return std::string(Info(found)->fabric_attr->prov_name);
  }
  PASSEL_ASSIGN_OR_RETURN(const Info any, HintsFor(""));
  std::vector<std::string> names;
  if (fi_getinfo(kVersion, nullptr, nullptr, 0, any.get(), &found) == 0) {
    const Info all(found);
    for (const fi_info* each = found; each != nullptr; each = each->next) {
      const std::string name = each->fabric_attr->prov_name;
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  return NotFound(fmt::format(
      "libfabric has no such provider of reliable datagrams with tags on this machine: name one of "
      "those that it has, {}",
      fmt::join(names, ", ")));
}

Result<std::shared_ptr<Network>> Network::Open(const NetworkOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  NetworkOptions& own = impl->options;
  own.provider = WholeName(own.provider);
  if (own.provider == "shm") {
    own.address.clear();
  } else {
    if (own.address.empty() && !own.interface.empty()) {
      PASSEL_ASSIGN_OR_RETURN(own.address, AddressOf(own.interface));
    }
    if (own.address.empty()) own.address = "127.0.0.1";
    PASSEL_RETURN_IF_ERROR(CheckAddress(own.address));
    PASSEL_RETURN_IF_ERROR(CheckIsHere(own.address));
  }
  if (own.port != 0 && (own.ports < 1 || own.port + own.ports - 1 > 65535)) {
    return InvalidArgument(
        fmt::format("{} ports from {} on are not within 1..65535: take a lower "
                    "first port or fewer",
                    own.ports, own.port));
  }
  PASSEL_ASSIGN_OR_RETURN(impl->info, FindInfo(own));
  impl->registers = own.always_register || (impl->info->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
  PASSEL_ASSIGN_OR_RETURN(impl->fabric, OpenFabric(*impl->info));
  PASSEL_ASSIGN_OR_RETURN(impl->domain, OpenDomain(impl->fabric.get(), impl->info.get()));
  return std::shared_ptr<Network>(new Network(std::move(impl)));
}

Network::Network(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Network::~Network() = default;

const NetworkOptions& Network::options() const { return impl_->options; }
bool Network::registers() const { return impl_->registers; }

Result<MemoryRegion> Network::Impl::RegisterRegion(std::span<const std::byte> memory) {
  fid_mr* region = nullptr;
  const std::uint64_t access =
      FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  // Relaxed: a counter.
  const std::uint64_t key = next_key.fetch_add(1, std::memory_order_relaxed);
  const int error =
      fi_mr_reg(domain.get(), memory.data(), memory.size(), access, 0, key, 0, &region, nullptr);
  if (error != 0) {
    return FabricStatus(error, fmt::format("registering {} bytes of memory", memory.size()));
  }
  return MemoryRegion(region);
}

Result<Registration> Network::Impl::Cover(std::span<const std::byte> memory) {
  Registration result;
  if (!registers || memory.empty()) return result;
  {
    const std::lock_guard lock(mutex);
    // The last one that begins at or before the memory: who registers does not overlap.
    auto after = regions.upper_bound(memory.data());
    if (after != regions.begin()) {
      const auto& [first, region] = *--after;
      if (memory.data() + memory.size() <= first + region.bytes) {
        result.descriptor = fi_mr_desc(region.object.get());
        return result;
      }
    }
  }
  PASSEL_ASSIGN_OR_RETURN(result.own, RegisterRegion(memory));
  result.descriptor = fi_mr_desc(result.own.get());
  return result;
}

Result<RegisteredMemory> Network::Register(std::span<const std::byte> memory) {
  RegisteredMemory result;
  if (!impl_->registers || memory.empty()) return result;
  PASSEL_ASSIGN_OR_RETURN(MemoryRegion region, impl_->RegisterRegion(memory));
  const std::lock_guard lock(impl_->mutex);
  impl_->regions.emplace(memory.data(), Impl::Region{memory.size(), std::move(region)});
  result.network_ = shared_from_this();
  result.first_ = memory.data();
  return result;
}

void Network::Forget(const std::byte* first) {
  const std::lock_guard lock(impl_->mutex);
  const auto at = impl_->regions.find(first);
  if (at != impl_->regions.end()) impl_->regions.erase(at);
}

RegisteredMemory::RegisteredMemory(RegisteredMemory&& other) noexcept = default;
RegisteredMemory& RegisteredMemory::operator=(RegisteredMemory&& other) noexcept {
  std::swap(network_, other.network_);
  std::swap(first_, other.first_);
  return *this;
}
RegisteredMemory::~RegisteredMemory() {
  if (network_ != nullptr) network_->Forget(first_);
}

}  // namespace passel::fabric

#include <fmt/core.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fi_errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/tcp_socket.h"
#include "fabric/libfabric/endpoint.h"

namespace passel::fabric {
namespace {

constexpr std::size_t kCompletions = 256;
constexpr std::size_t kMostNameBytes = 256;
constexpr std::uint64_t kAnyTag = ~std::uint64_t{0};

struct GivenUpEndpoints {
  std::mutex mutex;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
};
GivenUpEndpoints& given_up() {
  static auto* const all = new GivenUpEndpoints;  // never destroyed
  return *all;
}

// Sets the port of an IP address.
void SetPort(fi_info* info, std::uint16_t port) {
  auto* const address = static_cast<sockaddr*>(info->src_addr);
  if (address == nullptr) return;
  if (address->sa_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
  } else if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  }
}

// libfabric reads as much as the family or the text says.
bool IsAddress(std::uint32_t format, std::span<const std::uint8_t> bytes) {
  sockaddr head{};
  if (bytes.size() >= sizeof head) std::memcpy(&head, bytes.data(), sizeof head);
  const bool v4 = bytes.size() == sizeof(sockaddr_in) && head.sa_family == AF_INET;
  const bool v6 = bytes.size() == sizeof(sockaddr_in6) && head.sa_family == AF_INET6;
  switch (format) {
    case FI_SOCKADDR:
      return v4 || v6;
    case FI_SOCKADDR_IN:
      return v4;
    case FI_SOCKADDR_IN6:
      return v6;
    case FI_ADDR_STR:
      return bytes.size() > 1 && bytes.size() <= kMostNameBytes && bytes.back() == 0 &&
             std::all_of(bytes.begin(), bytes.end() - 1,
                         [](std::uint8_t c) { return c > ' ' && c < 0x7f; });
    default:  // of fixed size, and of providers that check it
      return !bytes.empty() && bytes.size() <= kMostNameBytes;
  }
}

}  // namespace

std::string AddressText(std::span<const std::uint8_t> address) {
  sockaddr_storage storage{};
  if (IsAddress(FI_SOCKADDR, address)) {
    std::memcpy(&storage, address.data(), address.size());
    return TcpAddress(reinterpret_cast<const sockaddr*>(&storage),
                      static_cast<socklen_t>(address.size()))
        .ToString();
  }
  return "its address";
}

Result<std::unique_ptr<Endpoint>> Endpoint::Open(std::shared_ptr<Network> network) {
  std::unique_ptr<Endpoint> endpoint(new Endpoint(std::move(network)));
  PASSEL_RETURN_IF_ERROR(endpoint->Enable());
  return endpoint;
}

void Endpoint::GiveUp(std::unique_ptr<Endpoint> endpoint) {
  if (endpoint->network_->options().provider == "shm") return;
  GivenUpEndpoints& all = given_up();
  const std::lock_guard lock(all.mutex);
  all.endpoints.push_back(std::move(endpoint));
}

std::size_t Endpoint::GivenUp() {
  GivenUpEndpoints& all = given_up();
  const std::lock_guard lock(all.mutex);
  return all.endpoints.size();
}

Status Endpoint::Enable() {
  Network::Impl& impl = network_->impl();
  wake_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return ErrnoStatus(errno, "eventfd");
  PASSEL_ASSIGN_OR_RETURN(peers_, OpenAddressVector(impl.domain.get()));
  PASSEL_ASSIGN_OR_RETURN(done_, OpenCompletionQueue(impl.domain.get(), kCompletions, &waits_));
  if (waits_) waits_ = fi_control(&done_->fid, FI_GETWAIT, &done_fd_) == 0;
  const Info info(fi_dupinfo(impl.info.get()));
  if (info == nullptr) return ResourceExhausted("libfabric has no memory for an endpoint");
  const NetworkOptions& options = impl.options;
  const int ports = options.port == 0 ? 1 : options.ports;
  Status status;
  for (int i = 0; i < ports; ++i) {
    if (options.port != 0) SetPort(info.get(), static_cast<std::uint16_t>(options.port + i));
    status = OpenOn(info.get());
    if (status.code() != Code::kAlreadyExists) break;
  }
  if (status.code() == Code::kAlreadyExists && options.port != 0) {
    return AlreadyExists(
        fmt::format("all {} ports from {} on are in use on {}: name more or others", ports,
                    options.port, options.address));
  }
  PASSEL_RETURN_IF_ERROR(status);
  std::size_t size = kMostNameBytes;
  address_.resize(size);
  const int error = fi_getname(&endpoint_->fid, address_.data(), &size);
  if (error != 0 || size > kMostNameBytes) {
    return FabricStatus(error, "an endpoint does not say its address");
  }
  address_.resize(size);
  return {};
}

Status Endpoint::OpenOn(fi_info* info) {
  PASSEL_ASSIGN_OR_RETURN(EndpointObject made,
                          OpenEndpointObject(network_->impl().domain.get(), info));
  int error = fi_ep_bind(made.get(), &peers_->fid, 0);
  if (error == 0) error = fi_ep_bind(made.get(), &done_->fid, FI_SEND | FI_RECV);
  if (error == 0) error = fi_enable(made.get());
  if (error != 0) return FabricStatus(error, "an endpoint cannot be made ready");
  endpoint_ = std::move(made);
  return {};
}

Status Endpoint::SetPeer(std::span<const std::uint8_t> address) {
  if (!IsAddress(network_->impl().info->addr_format, address)) {
    return InvalidArgument(fmt::format("{} bytes are no address of a peer over {}", address.size(),
                                       network_->options().provider));
  }
  const int inserted = fi_av_insert(peers_.get(), address.data(), 1, &peer_, 0, nullptr);
  if (inserted != 1) return InvalidArgument("the provider refuses the address of a peer");
  return {};
}

Result<bool> Endpoint::PostSend(std::span<const std::byte> memory, void* descriptor,
                                std::uint64_t tag, Transfer* transfer) {
  transfer->done = false;
  transfer->posted = true;
  const ssize_t error = fi_tsend(endpoint_.get(), memory.data(), memory.size(), descriptor, peer_,
                                 tag, &transfer->context);
  if (error == 0) return true;
  transfer->posted = false;
  if (error == -FI_EAGAIN) return false;
  return FabricStatus(error, "a message cannot be sent");
}

Result<bool> Endpoint::PostReceive(std::span<std::byte> memory, void* descriptor, std::uint64_t tag,
                                   Transfer* transfer) {
  transfer->done = false;
  transfer->posted = true;
  const ssize_t error = fi_trecv(endpoint_.get(), memory.data(), memory.size(), descriptor,
                                 FI_ADDR_UNSPEC, tag, 0, &transfer->context);
  if (error == 0) return true;
  transfer->posted = false;
  if (error == -FI_EAGAIN) return false;
  return FabricStatus(error, "no message can be received");
}

Result<std::size_t> Endpoint::Poll(Completions* out) {
  std::array<fi_cq_tagged_entry, kMostCompletions> entries;
  const ssize_t count = fi_cq_read(done_.get(), entries.data(), entries.size());
  if (count > 0) {
    std::size_t ours = 0;
    for (const fi_cq_tagged_entry& entry :
         std::span(entries).first(static_cast<std::size_t>(count))) {
      auto* const transfer = static_cast<Transfer*>(entry.op_context);
      if (transfer == &stranger_) {
        TakeStranger(entry.tag, true);
      } else {
        (*out)[ours++] = {transfer, entry.len, 0};
      }
    }
    return ours;
  }
  if (count == -FI_EAGAIN || count == 0) return std::size_t{0};
  if (count != -FI_EAVAIL) return FabricStatus(count, "the completion queue cannot be read");
  fi_cq_err_entry failed{};
  const ssize_t read = fi_cq_readerr(done_.get(), &failed, 0);
  if (read == -FI_EAGAIN) return std::size_t{0};
  if (read < 0) return FabricStatus(read, "the completion queue cannot be read");
  auto* const transfer = static_cast<Transfer*>(failed.op_context);
  if (transfer == &stranger_) {
    TakeStranger(0, false);
    return std::size_t{0};
  }
  (*out)[0] = {transfer, failed.len, failed.err > 0 ? failed.err : FI_EIO};
  return std::size_t{1};
}

void Endpoint::Sleep(std::chrono::nanoseconds longest) {
  fid* waited = &done_->fid;
  if (fi_trywait(network_->impl().fabric.get(), &waited, 1) != 0) return;
  std::array<pollfd, 2> fds = {pollfd{done_fd_, POLLIN, 0}, pollfd{wake_.get(), POLLIN, 0}};
  timespec time{};
  time.tv_sec = static_cast<time_t>(longest.count() / 1'000'000'000);
  time.tv_nsec = static_cast<long>(longest.count() % 1'000'000'000);
  if (::ppoll(fds.data(), fds.size(), &time, nullptr) <= 0) return;
  std::uint64_t count = 0;
  if (fds[1].revents != 0) (void)!::read(wake_.get(), &count, sizeof count);
}

void Endpoint::Wake() {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

// --- Strangers -----------------------------------------------------------------------------------

// Who finds the port can send. The first that nobody asked for is looked at, and thrown away if it
// is not ours; one of ours in front of others is soon taken.
void Endpoint::DropStrangers(std::uint64_t kept) {
  // shm takes the look for a receive of nothing; there only processes of this user can send.
  if (network_->options().provider.find("ofi_rxm") == std::string::npos) return;
  kept_ = kept;
  if (!stranger_.posted) LookForStrangers(0, kAnyTag, FI_PEEK);
}

void Endpoint::LookForStrangers(std::uint64_t tag, std::uint64_t ignored, std::uint64_t flags) {
  dropping_ = (flags & FI_DISCARD) != 0;
  fi_msg_tagged message{};
  message.addr = FI_ADDR_UNSPEC;
  message.tag = tag;
  message.ignore = ignored;
  message.context = &stranger_.context;
  stranger_.posted = fi_trecvmsg(endpoint_.get(), &message, flags) == 0;
}

void Endpoint::TakeStranger(std::uint64_t tag, bool found) {
  stranger_.posted = false;
  if (!found) return;
  if (dropping_) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    LookForStrangers(0, kAnyTag, FI_PEEK);
  } else if (tag != kept_) {
    LookForStrangers(tag, 0, FI_PEEK | FI_DISCARD);
  }
}

}  // namespace passel::fabric

#include <fmt/core.h>
#include <rdma/fi_errno.h>

#include <cerrno>

#include "fabric/libfabric/objects.h"

namespace passel::fabric {

Status FabricStatus(long error, std::string_view what) {
  const int code = static_cast<int>(-error);
  std::string text = fmt::format("{}: {}", what, fi_strerror(code));
  switch (code) {
    case FI_ENODATA:
    case FI_EADDRNOTAVAIL:
      return NotFound(std::move(text));
    case FI_EADDRINUSE:
      return AlreadyExists(std::move(text));
    case FI_ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
      return ResourceExhausted(std::move(text));
    case FI_EACCES:
    case EPERM:
      return PermissionDenied(std::move(text));
    default:
      return Unavailable(std::move(text));
  }
}

Result<FabricObject> OpenFabric(const fi_info& info) {
  fid_fabric* fabric = nullptr;
  const int error = fi_fabric(info.fabric_attr, &fabric, nullptr);
  if (error != 0) return FabricStatus(error, "libfabric opens no fabric");
  return FabricObject(fabric);
}

Result<DomainObject> OpenDomain(fid_fabric* fabric, fi_info* info) {
  fid_domain* domain = nullptr;
  const int error = fi_domain(fabric, info, &domain, nullptr);
  if (error != 0) return FabricStatus(error, "libfabric opens no domain");
  return DomainObject(domain);
}

Result<AddressVector> OpenAddressVector(fid_domain* domain) {
  fi_av_attr attributes{};
  attributes.type = FI_AV_UNSPEC;
  attributes.count = 1;
  fid_av* vector = nullptr;
  const int error = fi_av_open(domain, &attributes, &vector, nullptr);
  if (error != 0) return FabricStatus(error, "libfabric opens no address vector");
  return AddressVector(vector);
}

Result<CompletionQueue> OpenCompletionQueue(fid_domain* domain, std::size_t size, bool* waits) {
  fi_cq_attr attributes{};
  attributes.size = size;
  attributes.format = FI_CQ_FORMAT_TAGGED;
  attributes.wait_obj = FI_WAIT_FD;
  fid_cq* queue = nullptr;
  int error = fi_cq_open(domain, &attributes, &queue, nullptr);
  *waits = error == 0;
  if (error != 0) {
    attributes.wait_obj = FI_WAIT_NONE;
    error = fi_cq_open(domain, &attributes, &queue, nullptr);
  }
  if (error != 0) return FabricStatus(error, "libfabric opens no completion queue");
  return CompletionQueue(queue);
}

Result<EndpointObject> OpenEndpointObject(fid_domain* domain, fi_info* info) {
  fid_ep* endpoint = nullptr;
  const int error = fi_endpoint(domain, info, &endpoint, nullptr);
  if (error != 0) return FabricStatus(error, "libfabric opens no endpoint");
  return EndpointObject(endpoint);
}

}  // namespace passel::fabric

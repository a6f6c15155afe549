// objects.h - owners of what libfabric hands out.
//
// Each closes what it owns. They must be destroyed in this order: memory regions and endpoints,
// then completion queues and address vectors, then the domain, then the fabric, then the info. Who
// has several declares them the other way round.

#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <memory>
#include <string_view>

#include "base/status.h"

namespace passel::fabric {

struct InfoDeleter {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoDeleter>;

template <typename Object>
struct ObjectDeleter {
  void operator()(Object* object) const { (void)fi_close(&object->fid); }
};
template <typename Object>
using Owned = std::unique_ptr<Object, ObjectDeleter<Object>>;

using FabricObject = Owned<fid_fabric>;
using DomainObject = Owned<fid_domain>;
using AddressVector = Owned<fid_av>;
using CompletionQueue = Owned<fid_cq>;
using EndpointObject = Owned<fid_ep>;
using MemoryRegion = Owned<fid_mr>;

/// "<what>: <what libfabric says>", with the fitting code. `error` as libfabric returns it: below
/// 0.
Status FabricStatus(long error, std::string_view what);

Result<FabricObject> OpenFabric(const fi_info& info);
Result<DomainObject> OpenDomain(fid_fabric* fabric, fi_info* info);
/// Room for one peer.
Result<AddressVector> OpenAddressVector(fid_domain* domain);
/// With a descriptor to wait on where the provider has such; `waits` says whether it has.
Result<CompletionQueue> OpenCompletionQueue(fid_domain* domain, std::size_t size, bool* waits);
Result<EndpointObject> OpenEndpointObject(fid_domain* domain, fi_info* info);

}  // namespace passel::fabric

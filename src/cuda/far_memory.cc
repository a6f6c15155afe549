#include "cuda/far_memory.h"

#include <utility>

#include "cuda/plan.h"

namespace passel::cuda {

Status FarReader::Reserve(std::size_t bytes) {
  PASSEL_ASSIGN_OR_RETURN(near_, device_.Allocate(bytes));
  return {};
}

Status FarReader::Read(void* to_host, const void* from, std::size_t bytes, Deadline deadline) {
  if (bytes == 0) return {};
  auto& fetch = fetches_[from];
  if (fetch == nullptr) {
    Plan plan;
    plan.Add("fetch", AnyKernel(MakeFetch(near_.get(), from, bytes)), {{from, bytes}},
             {{near_.get(), bytes}});
    PASSEL_ASSIGN_OR_RETURN(fetch, device_.Prepare(plan, Device::How::kOneByOne));
  }
  launched_ = true;
  PASSEL_RETURN_IF_ERROR(device_.Launch(*fetch));
  PASSEL_RETURN_IF_ERROR(device_.Synchronize(deadline));
  return device_.CopyOut(to_host, near_.get(), bytes);
}

void FarReader::Abandon() {
  for (auto& [from, fetch] : fetches_) static_cast<void>(fetch.release());
  static_cast<void>(near_.release());
}

}  // namespace passel::cuda

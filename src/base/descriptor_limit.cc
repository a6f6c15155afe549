#include "base/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace passel {

void RaiseDescriptorLimit(std::uint64_t wanted) {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, wanted);
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace passel

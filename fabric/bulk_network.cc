#include "fabric/bulk_network.h"

#include <sys/random.h>

#include <cerrno>

namespace passel::fabric {

Result<PipeTags> PipeTags::Random() {
  PipeTags tags;
  for (std::uint64_t* tag : {&tags.sends, &tags.receives}) {
    if (::getrandom(tag, sizeof *tag, 0) != sizeof *tag) return ErrnoStatus(errno, "getrandom");
  }
  // Each stands for two.
  if ((tags.sends | 1) == (tags.receives | 1)) tags.receives ^= 2;
  return tags;
}

}  // namespace passel::fabric

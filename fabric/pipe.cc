#include "fabric/pipe.h"

namespace passel::fabric {

Status Pipe::ReadBulk(std::span<float> into, const std::function<bool()>& go_on) {
  constexpr std::chrono::milliseconds kLook{20};
  Deadline stalled = Deadline::After(stall_limit());
  while (!into.empty()) {
    PASSEL_ASSIGN_OR_RETURN(const std::size_t came, ReadSome(into, stalled.Sooner(kLook)));
    into = into.subspan(came);
    if (go_on && !go_on()) return Cancelled("the rest of a message is not wanted any more");
    if (came > 0) {
      stalled = Deadline::After(stall_limit());
    } else if (stalled.Expired()) {
      return Unavailable("a message stands still");
    }
  }
  return {};
}

}  // namespace passel::fabric

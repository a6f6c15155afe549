#include "compute/plugin_entry.h"

#include <string_view>

#include "compute/build_id.h"

namespace passel {

int AnswerHost(const AcceleratorHost& host, decltype(AcceleratorPlugin::open) open,
               AcceleratorPlugin* plugin) {
  plugin->abi = kAcceleratorAbi;
  plugin->size = sizeof(AcceleratorPlugin);
  plugin->build_id = BuildId();
  // Nothing behind the size of another ABI may be looked at.
  if (host.abi != kAcceleratorAbi || host.size != sizeof(AcceleratorHost) ||
      host.build_id == nullptr || std::string_view(host.build_id) != BuildId()) {
    return 1;
  }
  plugin->open = open;
  return 0;
}

}  // namespace passel

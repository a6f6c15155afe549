#include "compute/build_id.h"

namespace passel {

const char* BuildId() { return PASSEL_BUILD_ID; }

}  // namespace passel

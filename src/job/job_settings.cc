#include "job/job_settings.h"

namespace passel::job {

std::string ModeOf(const JobSettings& f) {
  if (!f.sync_replicas) return f.mode.value_or("hogwild");
  return f.replicas_to_aggregate || f.mode == "replicas" ? "replicas" : "barrier";
}

}  // namespace passel::job

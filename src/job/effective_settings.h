// effective_settings.h - for --print_config: defaults that follow from other settings.

#pragma once

#include "cluster/resolve.h"
#include "job/job_config.h"
#include "job/job_settings.h"

namespace passel::job {

/// Gives each setting that nobody made, and whose default depends on another, the value that will
/// be used, and says what it follows from; "-" where the others leave it without a meaning. The
/// mode becomes the one that is in force first, whatever names it. `config` is made of `flags`, on
/// a machine of `cores` cores.
void ShowEffective(const JobSettings& flags, const JobConfig& config, int cores,
                   ResolvedConfig* resolved);

}  // namespace passel::job

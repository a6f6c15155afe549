// descriptor_limit.h - how many files this process may have open.

#pragma once

#include <cstdint>

namespace passel {

/// Raises the soft limit to `wanted`, or as far as the hard one lets it; never lowers it. If it
/// stays too low, who opens one too many says so. Thread safety: any.
void RaiseDescriptorLimit(std::uint64_t wanted);

}  // namespace passel

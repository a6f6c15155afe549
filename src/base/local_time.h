// local_time.h - times of the wall clock, for people.

#pragma once

#include <string>

namespace passel {

/// Of WallSeconds(), in the local zone with the offset from UTC: "2026-11-21 17:04:05 +0100"; "-"
/// for what is no time.
std::string LocalTimeText(double wall_seconds);

}  // namespace passel

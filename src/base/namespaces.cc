#include "base/namespaces.h"

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace passel {
namespace {

// "time:[4026531834]"; empty if there is no such file.
std::string Namespace(const std::string& root, const char* name) {
  std::error_code error;
  return std::filesystem::read_symlink(root + "/proc/self/ns/" + name, error);
}

}  // namespace

bool UidMeansOneUser(uid_t uid, const std::string& root) {
  std::uint64_t overflow_uid = 65534;
  std::ifstream(root + "/proc/sys/kernel/overflowuid") >> overflow_uid;
  if (uid != overflow_uid) return true;
  std::uint64_t inside = 0, outside = 0, count = 0;
  std::ifstream map(root + "/proc/self/uid_map");
  if (!(map >> inside >> outside >> count)) return false;
  return inside == 0 && outside == 0 && count == 0xffff'ffff;  // every user has a number
}

std::string ClockOffsets(const std::string& root) {
  const std::string ours = Namespace(root, "time");
  if (ours != Namespace(root, "time_for_children")) return ours;
  std::string text, clock, seconds, nanoseconds;
  std::ifstream offsets(root + "/proc/self/timens_offsets");
  while (offsets >> clock >> seconds >> nanoseconds) {
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", clock, seconds, nanoseconds);
  }
  return text;
}

Status CheckClocksOfChildren(const std::string& root) {
  if (Namespace(root, "time") == Namespace(root, "time_for_children")) return {};
  return FailedPrecondition(
      "the processes that are started here would be in another time namespace than this one, and "
      "their clocks are compared: start it with unshare --fork");
}

}  // namespace passel

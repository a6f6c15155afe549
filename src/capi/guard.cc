#include "capi/guard.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <new>
#include <string>

#include "capi/passel.h"
#include "job/program_settings.h"

namespace passel::capi {
namespace {

static_assert(static_cast<int>(Code::kInvalidArgument) == PASSEL_INVALID_ARGUMENT &&
              static_cast<int>(Code::kNotFound) == PASSEL_NOT_FOUND &&
              static_cast<int>(Code::kAlreadyExists) == PASSEL_ALREADY_EXISTS &&
              static_cast<int>(Code::kPermissionDenied) == PASSEL_PERMISSION_DENIED &&
              static_cast<int>(Code::kFailedPrecondition) == PASSEL_FAILED_PRECONDITION &&
              static_cast<int>(Code::kResourceExhausted) == PASSEL_RESOURCE_EXHAUSTED &&
              static_cast<int>(Code::kDataLoss) == PASSEL_DATA_LOSS &&
              static_cast<int>(Code::kAborted) == PASSEL_ABORTED &&
              static_cast<int>(Code::kCancelled) == PASSEL_CANCELLED &&
              static_cast<int>(Code::kUnavailable) == PASSEL_UNAVAILABLE &&
              static_cast<int>(Code::kDeadlineExceeded) == PASSEL_DEADLINE_EXCEEDED &&
              static_cast<int>(Code::kInternal) == PASSEL_INTERNAL &&
              static_cast<int>(Code::kDiverged) == PASSEL_DIVERGED);

constexpr double kLongestWait = 1e8;  // seconds

thread_local char t_error[4096];

// What a flag of the command is, is a setting here, which has no dashes: "raise start_wait".
std::string InWordsOfPrograms(std::string_view sentence) {
  std::string text;
  while (!sentence.empty()) {
    const std::size_t dashes = std::min(sentence.find("--"), sentence.size());
    text += sentence.substr(0, dashes);
    sentence.remove_prefix(dashes);
    if (sentence.empty()) break;
    const std::string_view behind = sentence.substr(2);
    const std::string_view name =
        behind.substr(0, behind.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"));
    if (!job::MeansToProgram(name)) text += "--";
    text += name;
    sentence.remove_prefix(2 + name.size());
  }
  return text;
}

}  // namespace

const char* Said() noexcept { return t_error; }

void Say(std::string_view sentence) noexcept {
  std::string own;
  if (sentence.find("--") != std::string_view::npos) {
    try {
      sentence = own = InWordsOfPrograms(sentence);
    } catch (const std::bad_alloc&) {  // as it is, then
    }
  }
  const std::size_t length = std::min(sentence.size(), sizeof t_error - 1);
  std::copy_n(sentence.data(), length, t_error);
  t_error[length] = '\0';
}

Result<Deadline> After(double seconds) {
  if (!(seconds >= 0 && seconds <= kLongestWait)) {  // NaN, too
    return InvalidArgument(fmt::format("timeout_seconds is 0 to {:g}, not {}: use, for example, 60",
                                       kLongestWait, seconds));
  }
  return Deadline::After(std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
}

}  // namespace passel::capi

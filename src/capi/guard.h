// guard.h - what every function of passel.h does: no exception leaves it, and its sentence is kept.

#pragma once

#include <exception>
#include <new>
#include <string_view>

#include "base/deadline.h"
#include "base/status.h"
#include "capi/passel.h"

namespace passel::capi {

/// Keeps the sentence of this thread, cut where it is too long.
void Say(std::string_view sentence) noexcept;
/// What was said last; "" at first.
const char* Said() noexcept;

/// No exception leaves it.
template <typename Call>
passel_status Guarded(const Call& call) noexcept {
  try {
    const Status status = call();
    Say(status.message());
    return static_cast<passel_status>(status.code());
  } catch (const std::bad_alloc&) {
    Say("there is not enough memory: free some, or describe smaller variables");
    return PASSEL_RESOURCE_EXHAUSTED;
  } catch (const std::exception& error) {
    Say(error.what());
  } catch (...) {
    Say("an unknown exception was thrown");
  }
  return PASSEL_INTERNAL;
}

/// Errors: kInvalidArgument.
Result<Deadline> After(double seconds);

}  // namespace passel::capi

// The functions of passel.h that read a job.

#include <fmt/core.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/fork_children.h"
#include "capi/guard.h"
#include "capi/passel.h"
#include "capi/reader.h"
#include "capi/structs.h"

// The memory of a handle stays for ever, so that its use after passel_detach() can be seen.
struct passel_reader {
  std::unique_ptr<passel::capi::Reader> reader;  // null: it is detached
  const pid_t owner = ::getpid();                // whose connections it has
};

namespace passel::capi {
namespace {

passel_reader* NewHandle(std::unique_ptr<Reader> reader) {
  // Reachable for ever: who looks for leaks finds none.
  static auto* const handles = new std::vector<std::unique_ptr<passel_reader>>;
  static auto* const mutex = new std::mutex;
  const std::lock_guard lock(*mutex);
  handles->push_back(std::make_unique<passel_reader>());
  handles->back()->reader = std::move(reader);
  return handles->back().get();
}

// `call` gets the reader and returns a status.
template <typename Call>
passel_status With(passel_reader* handle, const Call& call) noexcept {
  return Guarded([&]() -> Status {
    if (handle == nullptr) return Null("the reader");
    if (handle->reader == nullptr) {
      return FailedPrecondition("this reader is detached: get another one of passel_attach()");
    }
    return call(*handle->reader);
  });
}

// Of a function that asks the job.
template <typename Call>
passel_status Asking(passel_reader* handle, const Call& call) noexcept {
  return With(handle, [&](Reader& reader) -> Status {
    if (handle->owner == ::getpid()) return call(reader);
    return FailedPrecondition(
        "this reader is of the process that this one is a child of, by fork(): get another one of "
        "passel_attach() here");
  });
}

}  // namespace
}  // namespace passel::capi

using passel::Deadline;
using passel::Status;
using passel::capi::Reader;

extern "C" {

passel_status passel_attach(const char* job_id, double timeout_seconds, passel_reader** reader) {
  return passel::capi::Guarded([&]() -> Status {
    if (reader == nullptr) return passel::capi::Null("where the reader goes");
    *reader = nullptr;
    passel::LeaveChildrenWithout();
    PASSEL_ASSIGN_OR_RETURN(const Deadline deadline, passel::capi::After(timeout_seconds));
    PASSEL_ASSIGN_OR_RETURN(
        std::unique_ptr<Reader> attached,
        Reader::Attach(job_id == nullptr ? std::string() : std::string(job_id), deadline));
    *reader = passel::capi::NewHandle(std::move(attached));
    return {};
  });
}

passel_status passel_reader_count(passel_reader* reader, size_t* num_variables) {
  return passel::capi::With(reader, [&](Reader& of) -> Status {
    if (num_variables == nullptr) return passel::capi::Null("where the number goes");
    *num_variables = of.variables().size();
    return {};
  });
}

passel_status passel_reader_variable(passel_reader* reader, size_t index,
                                     passel_variable* variable) {
  return passel::capi::With(reader, [&](Reader& of) -> Status {
    if (variable == nullptr) return passel::capi::Null("where the variable goes");
    PASSEL_RETURN_IF_ERROR(passel::capi::CheckSize("passel_variable", variable->struct_size,
                                                   passel::capi::kVariableBytes));
    PASSEL_RETURN_IF_ERROR(of.CheckVariable(index));
    const passel::VariableInfo& v = of.variables()[static_cast<passel::VarId>(index)];
    passel::capi::WriteOut(
        passel_variable{0, v.name.c_str(), v.shape.data(), v.shape.size(), v.group}, variable);
    return {};
  });
}

passel_status passel_read(passel_reader* reader, int32_t how, double timeout_seconds,
                          passel_reading* reading) {
  return passel::capi::Asking(reader, [&](Reader& of) -> Status {
    if (how != PASSEL_READ_NOW && how != PASSEL_READ_ONE_STEP) {
      return passel::InvalidArgument(fmt::format(
          "a reading is PASSEL_READ_NOW or PASSEL_READ_ONE_STEP (0, 1), not {}: use one of them",
          how));
    }
    if (reading != nullptr) {
      PASSEL_RETURN_IF_ERROR(passel::capi::CheckSize("passel_reading", reading->struct_size,
                                                     passel::capi::kReadingBytes));
    }
    PASSEL_ASSIGN_OR_RETURN(const Deadline deadline, passel::capi::After(timeout_seconds));
    PASSEL_RETURN_IF_ERROR(of.Read(how == PASSEL_READ_ONE_STEP, deadline));
    if (reading == nullptr) return {};
    const passel::shm::Snapshot& read = of.snapshot();
    passel::capi::WriteOut(
        passel_reading{0, read.global_step(), read.last_global_step(), read.exact() ? 1 : 0},
        reading);
    return {};
  });
}

passel_status passel_reader_values(passel_reader* reader, size_t variable, const float** values,
                                   size_t* elements) {
  return passel::capi::With(reader, [&](Reader& of) -> Status {
    if (values == nullptr) return passel::capi::Null("where the values go");
    PASSEL_RETURN_IF_ERROR(of.CheckVariable(variable));
    if (!of.has_values()) {
      return passel::FailedPrecondition(
          "nothing was read: call passel_read() before passel_reader_values()");
    }
    const auto read = of.Values(variable);
    *values = read.data();
    if (elements != nullptr) *elements = read.size();
    return {};
  });
}

passel_status passel_wait_version(passel_reader* reader, int64_t global_step,
                                  double timeout_seconds, int64_t* now) {
  return passel::capi::Asking(reader, [&](Reader& of) -> Status {
    PASSEL_ASSIGN_OR_RETURN(const Deadline deadline, passel::capi::After(timeout_seconds));
    PASSEL_ASSIGN_OR_RETURN(const std::int64_t step, of.WaitForStep(global_step, deadline));
    if (now != nullptr) *now = step;
    return {};
  });
}

passel_status passel_detach(passel_reader* reader) {
  return passel::capi::With(reader, [&](Reader&) -> Status {
    reader->reader.reset();
    return {};
  });
}

}  // extern "C"

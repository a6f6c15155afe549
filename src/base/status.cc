#include "base/status.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace passel {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "OK";
    case Code::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case Code::kNotFound:
      return "NOT_FOUND";
    case Code::kAlreadyExists:
      return "ALREADY_EXISTS";
    case Code::kPermissionDenied:
      return "PERMISSION_DENIED";
    case Code::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case Code::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case Code::kDataLoss:
      return "DATA_LOSS";
    case Code::kAborted:
      return "ABORTED";
    case Code::kCancelled:
      return "CANCELLED";
    case Code::kUnavailable:
      return "UNAVAILABLE";
    case Code::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case Code::kInternal:
      return "INTERNAL";
    case Code::kDiverged:
      return "DIVERGED";
  }
  return "UNKNOWN";
}

Status::Status(Code code, std::string message)
    : rep_(std::make_unique<Rep>(Rep{code, std::move(message)})) {
  PASSEL_CHECK(code != Code::kOk, "an error Status needs an error code");
}

Status::Status(const Status& other)
    : rep_(other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) rep_ = other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr;
  return *this;
}

const std::string& Status::message() const {
  static const std::string empty;
  return rep_ ? rep_->message : empty;
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  return std::string(CodeName(code())) + ": " + message();
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return {};
  return Status(code(), std::string(context) + ": " + message());
}

Status InvalidArgument(std::string m) { return Status(Code::kInvalidArgument, std::move(m)); }
Status NotFound(std::string m) { return Status(Code::kNotFound, std::move(m)); }
Status AlreadyExists(std::string m) { return Status(Code::kAlreadyExists, std::move(m)); }
Status PermissionDenied(std::string m) { return Status(Code::kPermissionDenied, std::move(m)); }
Status FailedPrecondition(std::string m) { return Status(Code::kFailedPrecondition, std::move(m)); }
Status ResourceExhausted(std::string m) { return Status(Code::kResourceExhausted, std::move(m)); }
Status DataLoss(std::string m) { return Status(Code::kDataLoss, std::move(m)); }
Status Aborted(std::string m) { return Status(Code::kAborted, std::move(m)); }
Status Cancelled(std::string m) { return Status(Code::kCancelled, std::move(m)); }
Status Unavailable(std::string m) { return Status(Code::kUnavailable, std::move(m)); }
Status DeadlineExceeded(std::string m) { return Status(Code::kDeadlineExceeded, std::move(m)); }
Status Internal(std::string m) { return Status(Code::kInternal, std::move(m)); }
Status Diverged(std::string m) { return Status(Code::kDiverged, std::move(m)); }

namespace {

// "" or the limit of this process that is behind the error, its value, and how to raise it.
std::string LimitThatWasReached(int error) {
  const auto soft_limit = [](auto resource) {
    rlimit limit{};
    return ::getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
  };
  switch (error) {
    case ENOMEM: {
      const rlim_t space = soft_limit(RLIMIT_AS);
      const rlim_t data = soft_limit(RLIMIT_DATA);
      if (space == RLIM_INFINITY && data == RLIM_INFINITY) {
        return ", free some, or use a smaller model or fewer tasks";
      }
      return data < space ? ", the limit for this process is " + std::to_string(data) +
                                " bytes of data: raise it with ulimit -d"
                          : ", the limit for this process is " + std::to_string(space) +
                                " bytes of address space: raise it with ulimit -v";
    }
    case EAGAIN: {  // of fork() and of a new thread, whose stack is part of the address space
      const rlim_t tasks = soft_limit(RLIMIT_NPROC);
      const rlim_t space = soft_limit(RLIMIT_AS);
      std::string limits = tasks == RLIM_INFINITY
                               ? "the limit is the machine's or the container's (pids.max)"
                               : "the limit for this user is " + std::to_string(tasks) +
                                     " processes and threads (ulimit -u)";
      if (space != RLIM_INFINITY) {
        limits += ", and " + std::to_string(space) +
                  " bytes of address space for this process (ulimit -v)";
      }
      return ", " + limits + ": raise it, or use fewer tasks";
    }
    case EMFILE:
      return ", the limit for this process is " + std::to_string(soft_limit(RLIMIT_NOFILE)) +
             ": raise it with ulimit -n";
    case EFBIG: {
      const rlim_t most = soft_limit(RLIMIT_FSIZE);
      if (most == RLIM_INFINITY) return "";
      return ", the limit for this process is " + std::to_string(most) +
             " bytes: raise it with ulimit -f";
    }
    default:
      return "";
  }
}

}  // namespace

Status ErrnoStatus(int error, std::string_view what) {
  std::string message =
      std::string(what) + ": " + std::strerror(error) + LimitThatWasReached(error);
  switch (error) {
    case EPERM:
    case EACCES:
    case EROFS:
      return PermissionDenied(std::move(message));
    case ENOENT:
      return NotFound(std::move(message));
    case EEXIST:
    case EADDRINUSE:
      return AlreadyExists(std::move(message));
    case EAGAIN:
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
    case EFBIG:
    case EDQUOT:
      return ResourceExhausted(std::move(message));
    case ENAMETOOLONG:
    case ELOOP:
    case ENOTDIR:
      return InvalidArgument(std::move(message));
    default:
      return Internal(std::move(message));
  }
}

}  // namespace passel

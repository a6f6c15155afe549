// status.h - how this project reports that the world failed.
//
// Two classes of failure. What can go wrong in a correct program (a file is missing, a peer died,
// memory is short) is returned as a Status. What only a bug can cause stops the program
// (base/check.h). Nothing of ours throws across a module border.
//
// A message is one sentence that names the limit, the actual value and the fix.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace passel {

enum class Code {
  kOk = 0,
  kInvalidArgument,     ///< the user asked for something that can never work
  kNotFound,            ///< a named thing is not there
  kAlreadyExists,       ///< somebody holds this name or identity already
  kPermissionDenied,    ///< wrong user or wrong token
  kFailedPrecondition,  ///< the state does not allow it (another layout, missing seals)
  kResourceExhausted,   ///< memory, descriptors or slots are short
  kDataLoss,            ///< a file is cut off or corrupt
  kAborted,             ///< this task was fenced off: it must join again
  kCancelled,           ///< Stop() was called
  kUnavailable,         ///< a peer died: reopen, retrying cannot help
  kDeadlineExceeded,    ///< the wait ended; the operation may still complete
  kInternal,            ///< the operating system refused what it normally grants
  kDiverged,            ///< training gave numbers that are not finite: it failed for good
};

std::string_view CodeName(Code code);

/// The result of an operation without a value. One pointer wide; OK allocates nothing.
class [[nodiscard]] Status {
 public:
  Status() = default;  ///< OK.
  /// REQUIRES: code != Code::kOk.
  Status(Code code, std::string message);
  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ ? rep_->code : Code::kOk; }
  /// Empty for OK.
  const std::string& message() const;
  /// "CODE: message", for logs and test failures.
  std::string ToString() const;
  /// The same code, with `context` and a colon put before the message.
  Status WithContext(std::string_view context) const;

 private:
  struct Rep {
    Code code;
    std::string message;
  };
  std::unique_ptr<Rep> rep_;
};

Status InvalidArgument(std::string message);
Status NotFound(std::string message);
Status AlreadyExists(std::string message);
Status PermissionDenied(std::string message);
Status FailedPrecondition(std::string message);
Status ResourceExhausted(std::string message);
Status DataLoss(std::string message);
Status Aborted(std::string message);
Status Cancelled(std::string message);
Status Unavailable(std::string message);
Status DeadlineExceeded(std::string message);
Status Internal(std::string message);
Status Diverged(std::string message);
/// Internal("<what>: <strerror(error)>"), or the fitting code for EPERM, ENOENT, ENOMEM, ENOSPC.
Status ErrnoStatus(int error, std::string_view what);

/// A value, or why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor): as return
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    PASSEL_CHECK(!status_.ok(), "a Result without a value needs an error");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  /// REQUIRES: ok(), for all below.
  T& value() & { return Checked(); }
  const T& value() const& { return const_cast<Result*>(this)->Checked(); }
  T&& value() && { return std::move(Checked()); }
  T& operator*() & { return Checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->Checked(); }
  T&& operator*() && { return std::move(Checked()); }
  T* operator->() { return &Checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->Checked(); }

 private:
  T& Checked() {
    PASSEL_CHECK(value_.has_value(), status_.ToString().c_str());
    return *value_;
  }
  Status status_;
  std::optional<T> value_;
};

}  // namespace passel

#define PASSEL_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    ::passel::Status passel_status_ = (expr);        \
    if (!passel_status_.ok()) return passel_status_; \
  } while (false)

#define PASSEL_CONCAT_INNER_(a, b) a##b
#define PASSEL_CONCAT_(a, b) PASSEL_CONCAT_INNER_(a, b)
/// PASSEL_ASSIGN_OR_RETURN(auto x, F()): x = value of F(), or return its error.
#define PASSEL_ASSIGN_OR_RETURN(lhs, expr) \
  PASSEL_ASSIGN_OR_RETURN_(PASSEL_CONCAT_(passel_result_, __LINE__), lhs, expr)
#define PASSEL_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return tmp.status();            \
  lhs = std::move(tmp).value()

#include "base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

namespace passel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(StatusTest, OkCarriesNothing) {
  const Status ok;
  EXPECT_TRUE(ok.ok());
  EXPECT_EQ(ok.code(), Code::kOk);
  EXPECT_EQ(ok.message(), "");
  EXPECT_EQ(ok.ToString(), "OK");
  EXPECT_TRUE(ok.WithContext("reading").ok());
  static_assert(sizeof(Status) == sizeof(void*));
}

TEST(StatusTest, EveryCodeHasItsConstructorAndItsOwnName) {
  const std::vector<std::pair<Status, Code>> table{
      {InvalidArgument("m"), Code::kInvalidArgument},
      {NotFound("m"), Code::kNotFound},
      {AlreadyExists("m"), Code::kAlreadyExists},
      {PermissionDenied("m"), Code::kPermissionDenied},
      {FailedPrecondition("m"), Code::kFailedPrecondition},
      {ResourceExhausted("m"), Code::kResourceExhausted},
      {DataLoss("m"), Code::kDataLoss},
      {Aborted("m"), Code::kAborted},
      {Cancelled("m"), Code::kCancelled},
      {Unavailable("m"), Code::kUnavailable},
      {DeadlineExceeded("m"), Code::kDeadlineExceeded},
      {Internal("m"), Code::kInternal},
      {Diverged("m"), Code::kDiverged}};
  std::set<std::string> names{"OK", "UNKNOWN"};
  for (const auto& [status, code] : table) {
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), "m");
    EXPECT_EQ(status.ToString(), std::string(CodeName(code)) + ": m");
    EXPECT_TRUE(names.emplace(CodeName(code)).second) << CodeName(code);
  }
}

TEST(StatusTest, ACopyIsIndependentOfItsSource) {
  Status source = NotFound("first");
  const Status copy = source;
  source = DataLoss("second");
  EXPECT_EQ(copy.ToString(), "NOT_FOUND: first");
  EXPECT_EQ(source.ToString(), "DATA_LOSS: second");
  source = copy;
  EXPECT_EQ(source.ToString(), "NOT_FOUND: first");
  Status& self = source;
  source = self;
  EXPECT_EQ(source.ToString(), "NOT_FOUND: first");
  source = Status();
  EXPECT_TRUE(source.ok());
  EXPECT_EQ(copy.ToString(), "NOT_FOUND: first");
}

TEST(StatusTest, AMoveTakesTheMessageAlong) {
  Status source = NotFound(std::string(100, 'x'));
  const char* const text = source.message().data();
  Status target = std::move(source);
  EXPECT_EQ(target.code(), Code::kNotFound);
  EXPECT_EQ(target.message().data(), text);
  Status other = DataLoss("old");
  other = std::move(target);
  EXPECT_EQ(other.message().data(), text);
}

TEST(StatusTest, ContextGoesBeforeTheMessageAndKeepsTheCode) {
  const Status inner = NotFound("no such file");
  const Status outer = inner.WithContext("model.safetensors").WithContext("restore");
  EXPECT_EQ(outer.ToString(), "NOT_FOUND: restore: model.safetensors: no such file");
  EXPECT_EQ(inner.message(), "no such file");
}

TEST(StatusTest, ErrnoValuesBecomeTheFittingCode) {
  const std::vector<std::pair<int, Code>> table{{EPERM, Code::kPermissionDenied},
                                                {EACCES, Code::kPermissionDenied},
                                                {ENOENT, Code::kNotFound},
                                                {EEXIST, Code::kAlreadyExists},
                                                {EADDRINUSE, Code::kAlreadyExists},
                                                {ENOMEM, Code::kResourceExhausted},
                                                {ENOSPC, Code::kResourceExhausted},
                                                {EMFILE, Code::kResourceExhausted},
                                                {ENFILE, Code::kResourceExhausted},
                                                {EFBIG, Code::kResourceExhausted},
                                                {ENAMETOOLONG, Code::kInvalidArgument},
                                                {EIO, Code::kInternal}};
  for (const auto& [error, code] : table) {
    const Status status = ErrnoStatus(error, "cannot open x");
    EXPECT_EQ(status.code(), code) << std::strerror(error);
    EXPECT_THAT(status.message(),
                StartsWith(std::string("cannot open x: ") + std::strerror(error)));
  }
}

TEST(StatusTest, LimitOfTheProcessIsNamedWithItsValueAndTheFix) {
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_THAT(ErrnoStatus(EMFILE, "cannot open x").message(),
              AllOf(HasSubstr(std::to_string(files.rlim_cur)), HasSubstr("ulimit -n")));
}

/// Can be moved but not copied.
struct MoveOnly {
  explicit MoveOnly(int v) : value(std::make_unique<int>(v)) {}
  std::unique_ptr<int> value;
};

Result<MoveOnly> Half(int value) {
  if (value % 2 != 0) return InvalidArgument(std::to_string(value) + " is odd");
  return MoveOnly(value / 2);
}

Result<int> Quarter(int value) {
  PASSEL_ASSIGN_OR_RETURN(const MoveOnly half, Half(value));
  int quarter = 0;
  PASSEL_ASSIGN_OR_RETURN(MoveOnly result, Half(*half.value));
  quarter = *result.value;
  return quarter;
}

Status CheckQuarter(int value, int* calls) {
  PASSEL_RETURN_IF_ERROR(Quarter(value).status());
  ++*calls;
  return {};
}

TEST(ResultTest, HoldsAValueOrAnError) {
  Result<MoveOnly> good = Half(8);
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(*good->value, 4);
  *good->value = 5;
  const MoveOnly taken = *std::move(good);
  EXPECT_EQ(*taken.value, 5);

  const Result<MoveOnly> bad = Half(7);
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().ToString(), "INVALID_ARGUMENT: 7 is odd");
}

TEST(ResultTest, CopiesAreIndependent) {
  Result<std::vector<int>> source = std::vector<int>{1, 2};
  Result<std::vector<int>> copy = source;
  copy->push_back(3);
  EXPECT_EQ(source->size(), 2u);
  EXPECT_EQ(copy->size(), 3u);
  source = NotFound("gone");
  EXPECT_FALSE(source.ok());
  EXPECT_TRUE(copy.ok());
}

TEST(ResultTest, TheMacrosStopAtTheFirstError) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
  EXPECT_EQ(Quarter(5).status().message(), "5 is odd");
  int calls = 0;
  EXPECT_TRUE(CheckQuarter(12, &calls).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(CheckQuarter(6, &calls).message(), "3 is odd");
  EXPECT_EQ(calls, 1);
}

TEST(StatusDeathTest, ProgrammingErrorsStopTheProgram) {
  EXPECT_DEATH(Status(Code::kOk, "m").ok(), "an error Status needs an error code");
  EXPECT_DEATH(Result<int>(Status()).ok(), "a Result without a value needs an error");
  EXPECT_DEATH(Half(7).value(), "INVALID_ARGUMENT: 7 is odd");
}

}  // namespace
}  // namespace passel

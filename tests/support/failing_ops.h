// failing_ops.h - the system calls of a save, one of which fails.

#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/file.h"

namespace passel::test {

/// The real file system, where the n-th call fails: a write after half of its bytes.
class FailingOps : public FileOps {
 public:
  FailingOps(int fail_at, int error) : fail_at_(fail_at), error_(error) {}
  int Open(const std::string& path, int* fd) override {
    return Fails("open") ? error_ : FileOps::Open(path, fd);
  }
  int Write(int fd, const void* data, std::size_t bytes) override {
    if (!Fails("write")) return FileOps::Write(fd, data, bytes);
    EXPECT_EQ(FileOps::Write(fd, data, bytes / 2), 0);
    return error_;
  }
  int WriteAt(int fd, const void* data, std::size_t bytes, std::uint64_t offset) override {
    if (!Fails("write")) return FileOps::WriteAt(fd, data, bytes, offset);
    EXPECT_EQ(FileOps::WriteAt(fd, data, bytes / 2, offset), 0);
    return error_;
  }
  int SetDirect(int fd, bool direct) override {
    return Fails("direct") ? error_ : FileOps::SetDirect(fd, direct);
  }
  int SyncFile(int fd) override { return Fails("fsync") ? error_ : FileOps::SyncFile(fd); }
  int Close(int fd) override {
    const bool fails = Fails("close");
    const int result = FileOps::Close(fd);  // Linux frees the descriptor even when close fails
    return fails ? error_ : result;
  }
  int Rename(const std::string& from, const std::string& to) override {
    return Fails("rename") ? error_ : FileOps::Rename(from, to);
  }
  int SyncDir(const std::string& dir) override {
    return Fails("fsync of the folder") ? error_ : FileOps::SyncDir(dir);
  }
  int Unlink(const std::string& path) override {
    return Fails("unlink") ? error_ : FileOps::Unlink(path);
  }
  /// The call that failed; empty if fewer calls were made.
  const std::string& failed() const { return failed_; }

 private:
  bool Fails(const char* call) {
    if (++calls_ != fail_at_) return false;
    failed_ = call;
    return true;
  }
  int fail_at_;
  int error_;
  int calls_ = 0;
  std::string failed_;
};

}  // namespace passel::test

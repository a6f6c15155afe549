// folder_owner.h - who may change a folder: one process at a time, for as long as it lives.
//
// The owner holds a POSIX lock on FOLDER/.owner, which works on NFS and goes when the process does,
// even by kill -9. The file stays, so that its lock is one that all see.
//
// Thread safety: none.

#pragma once

#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace passel {

inline constexpr const char* kOwnerFile = ".owner";

class FolderOwner {
 public:
  /// REQUIRES: the folder is there. Errors: kAlreadyExists, naming the owner, if a process owns it
  /// that lives; those of the system.
  static Result<FolderOwner> Become(const std::string& folder);

  /// Whether what is at that path now is the folder that is owned: it may have been moved away,
  /// deleted or emptied, and may have got another owner.
  bool Owns(const std::string& folder) const;
  /// Whether it is on the file system on which the folder was that is owned.
  bool IsOnSameDisk(const std::string& folder) const;

 private:
  explicit FolderOwner(FileDescriptor fd) : fd_(std::move(fd)) {}
  FileDescriptor fd_;  // of the file, with the lock
};

}  // namespace passel

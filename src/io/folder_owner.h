// folder_owner.h - who may change a folder: one process at a time, for as long as it lives.
//
// The owner holds a POSIX lock on FOLDER/.owner, which works on NFS and goes when the process does,
// even by kill -9. It has three lines: "process 12 on host", a word of the job, and what is being
// written. The file stays, so that its lock is one that all see; but an owner that has made it, and
// written nothing else there, takes it away again.
//
// Thread safety: none.

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace passel {

inline constexpr const char* kOwnerFile = ".owner";

class FolderOwner {
 public:
  /// Makes the folder if there is none. `job`: a word that all lives of the owner's job have, ""
  /// for none; `left`: what a former owner was writing. Errors: kAlreadyExists, naming the owner,
  /// if a process owns it that lives; kUnavailable if that is of the same job; those of the system.
  static Result<FolderOwner> Become(const std::string& folder, std::string_view job,
                                    std::string* left);

  FolderOwner(FolderOwner&&) noexcept = default;
  FolderOwner& operator=(FolderOwner&&) noexcept = default;
  ~FolderOwner();

  const std::string& job() const { return job_; }
  /// Something is about to be written: the file, and the folder, stay.
  void Keep() { made_.clear(); }
  /// Who it is, and what is `saving` now, for others to read: on the disk before it returns, if
  /// that is something. Errors: those of the system.
  Status Say(std::string_view saving) const;

  /// Whether what is at that path now is the folder that is owned: it may have been moved away,
  /// deleted or emptied, and may have got another owner. Errors: those of the system.
  Result<bool> Owns(const std::string& folder) const;
  /// Whether it is on the file system on which the folder was that is owned.
  bool IsOnSameDisk(const std::string& folder) const;

 private:
  static Result<FolderOwner> TryToBecome(const std::string& folder, std::string_view job,
                                         std::string* left);
  FolderOwner(std::string folder, std::string job, FileDescriptor fd, std::vector<std::string> made)
      : folder_(std::move(folder)),
        job_(std::move(job)),
        fd_(std::move(fd)),
        made_(std::move(made)) {}
  std::string folder_, job_;
  FileDescriptor fd_;              // of the file, with the lock
  std::vector<std::string> made_;  // to be taken away again, in this order: the file, then folders
};

}  // namespace passel

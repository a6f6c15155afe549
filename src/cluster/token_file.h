// token_file.h - the job token of tasks that are started by hand: a file that lives as long as one
// of them.
//
// Every task holds a shared lock (flock) on the file while it lives; the kernel drops it when the
// task ends, however it ends. So nobody has to be asked whether a file is stale: who can lock it
// exclusively is alone. The first task makes the file, the last to leave removes it, and a file
// that is left behind by tasks that were killed is removed by the next start, of whatever job.
//
// Races      A file gets its name only when it is whole and locked. Who has locked a file looks
//            whether the name still leads to it, and begins anew if not.
// Trust      The folder must belong to this user alone: whoever can write to it can remove the
//            file under the tasks.

#pragma once

#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/status.h"
#include "cluster/job_token.h"

namespace passel {

inline constexpr std::string_view kTokenFileEnding = ".token";

/// Removes the token files in `dir` that no process holds. Best effort: what cannot be opened
/// stays. REQUIRES: all of them were made by TokenFile::Join().
void RemoveStaleTokenFiles(const std::string& dir);

class TokenFile {
 public:
  TokenFile() = default;
  /// Reads the token of the tasks that live, or makes a new one where there is none.
  /// Errors: those of JobToken::Read(), a link is not followed; kDeadlineExceeded when others keep
  /// the file locked, which takes microseconds in a good run.
  static Result<TokenFile> Join(const std::string& path, Deadline deadline);

  TokenFile(TokenFile&&) noexcept = default;
  /// Leaves the file held so far, as the destructor does.
  TokenFile& operator=(TokenFile&& other) noexcept;
  /// Removes the file if no other task holds it.
  ~TokenFile();

  const JobToken& token() const { return token_; }
  /// Removes the file although others may hold it: the job is over. Does nothing if another start
  /// has replaced it.
  void Remove();

 private:
  TokenFile(std::string path, FileDescriptor fd, const JobToken& token)
      : path_(std::move(path)), fd_(std::move(fd)), token_(token) {}
  void Leave();

  std::string path_;
  FileDescriptor fd_;  // locked; invalid: nothing is held
  JobToken token_;
};

}  // namespace passel

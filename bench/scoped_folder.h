// scoped_folder.h - a temporary folder that is removed with all that was written.

#pragma once

#include <string>

namespace passel::bench {

class ScopedFolder {
 public:
  /// In $TMPDIR, or /tmp.
  ScopedFolder();
  ~ScopedFolder();
  ScopedFolder(const ScopedFolder&) = delete;
  ScopedFolder& operator=(const ScopedFolder&) = delete;
  bool made() const { return made_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_ = false;
};

}  // namespace passel::bench

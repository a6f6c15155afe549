#include "bench/scoped_folder.h"

#include <cstdlib>
#include <filesystem>

namespace passel::bench {

ScopedFolder::ScopedFolder()
    : path_(std::filesystem::temp_directory_path() / "passel-bench.XXXXXX") {
  made_ = ::mkdtemp(path_.data()) != nullptr;
}

ScopedFolder::~ScopedFolder() {
  std::error_code ignored;
  if (made_) std::filesystem::remove_all(path_, ignored);
}

}  // namespace passel::bench

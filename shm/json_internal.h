// json_internal.h - a request and its answer. For .cc files only: it is a heavy header.

#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/memory_file.h"
#include "shm/arena.h"
#include "store/worker_names.h"

namespace passel::shm {

/// One request and its answer.
struct Exchange {
  nlohmann::json request;
  std::vector<FileDescriptor> request_fds;
  nlohmann::json answer = {{"ok", true}};
  std::vector<int> fds;               ///< that go with the answer
  std::vector<FileDescriptor> owned;  ///< closed behind the answer
  bool waits_for_arena = false;       ///< the answer is the arena, once it is there

  void Add(FileDescriptor fd) {
    fds.push_back(fd.get());
    owned.push_back(std::move(fd));
  }
  /// That may be too long for a message.
  Status AddText(const char* name, const std::string& text) {
    PASSEL_ASSIGN_OR_RETURN(FileDescriptor fd, CreateConstantFile(name, text.data(), text.size()));
    Add(std::move(fd));
    return {};
  }
};

/// What an arena tells of its job (shm/job_status.h), with the last events: an object.
nlohmann::json DescribeJob(const Arena& arena, const WorkerNames& names);

}  // namespace passel::shm

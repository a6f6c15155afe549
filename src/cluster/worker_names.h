// worker_names.h - what people call the workers of a job.
//
// To the store whoever trains is a worker with an index: worker/i has index i, and a chief (or
// master) task of its own has the index after the last of them. People know it by the name that the
// cluster spec gives it.
//
// Thread safety: a value.

#pragma once

#include <string>

namespace passel {

struct WorkerNames {
  int chief = 0;                        ///< its index
  std::string chief_name = "worker/0";  ///< "chief/0", "master/0"

  /// "worker/1", "chief/0".
  std::string operator()(int worker) const {
    return worker == chief ? chief_name : "worker/" + std::to_string(worker);
  }
};

}  // namespace passel

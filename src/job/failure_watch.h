// failure_watch.h - how `passel run` on one of several hosts hears that a task of another one has
// failed and ended the job: it asks ps/0 once a second.

#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "job/cluster_part.h"

namespace passel::job {

class FailureWatch {
 public:
  /// `part` outlives it.
  explicit FailureWatch(const ClusterPart& part);
  ~FailureWatch() { (void)Finish(/*once_more=*/false); }

  /// The sentence of ClusterPart::FailureOf(); "": nothing was heard of a failure.
  std::string Heard();
  /// As Heard(), and ends the watch. `once_more`: asks a last time, unless ps/0 has not answered
  /// just now. Takes four seconds at most.
  std::string Finish(bool once_more);

 private:
  void Watch();

  const ClusterPart& part_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false, once_more_ = false;
  std::string heard_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace passel::job

// reader.h - the live values of a job for Python, without taking part.

#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "capi/passel.h"
#include "python/job.h"

namespace passel::python {

/// Thread safety: as Job.
class Reader {
 public:
  /// Waits until the job is there and has values; Ctrl-C ends the wait.
  Reader(const std::optional<std::string>& job_id, double timeout);
  ~Reader();

  /// Names and shapes.
  std::vector<std::tuple<std::string, std::vector<std::int64_t>>> Variables() const;
  /// `how`: PASSEL_READ_*. Returns global_step, last_global_step, is_exact.
  std::tuple<std::int64_t, std::int64_t, bool> Read(int how, double timeout);
  /// The dict of arrays that Read() fills, always the same one.
  nanobind::dict Values() const { return values_; }
  std::int64_t WaitVersion(std::int64_t global_step, double timeout);
  void Detach();

 private:
  void CheckAttached() const;
  void Describe();

  passel_reader* reader_ = nullptr;  // null: it has left
  std::mutex busy_;
  std::vector<Variable> variables_;
  std::vector<std::shared_ptr<LentMemory>> copies_;
  nanobind::dict values_;
};

}  // namespace passel::python

// job.h - one worker's job for Python: the C interface with arrays, without the GIL in waits, and
// with waits that a signal's handler can end.

#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "capi/passel.h"
#include "python/arrays.h"
#include "python/lent_memory.h"
#include "python/waits.h"
#include "python/watch.h"

namespace passel::python {

/// Thread safety: a second thread in a call gets an exception, but for Stop() and what follows it.
class Job {
 public:
  /// Joins. Waits as the setting start_wait says; Ctrl-C ends the wait.
  Job(std::vector<std::string> settings, std::vector<Variable> variables);
  ~Job();

  /// worker, workers, is_chief, is_alone, job_id
  std::tuple<int, int, bool, bool, std::string> Describe();
  /// Of each variable an array of float32 in C order, or None.
  /// `step`, the `names` of slot variables, and of each variable and slot variable an array or
  /// None, in turn: the optimizer's state; no step: as it begins.
  void Initialize(const nanobind::list& values, std::optional<std::int64_t> step,
                  const std::vector<std::string>& names, const nanobind::list& slots,
                  double timeout);
  /// passel_beginning(): number, global_step, is_own, is_of_checkpoint.
  std::tuple<std::uint64_t, std::int64_t, bool, bool> Beginning();
  /// Step, names of the slot variables, and arrays of the caller's as Initialize() takes them.
  std::tuple<std::int64_t, std::vector<std::string>, nanobind::list> ReadState();
  /// `how`: PASSEL_PULL_*. Returns the dict of arrays, at every call the same one.
  nanobind::dict Pull(int how);
  nanobind::dict Gradients();
  /// How often one of the arrays that Pull() and Gradients() give has become another.
  std::int64_t Moves() const { return moves_; }
  /// Writes 0 to the gradients, which Gradients() has given for the next push.
  void ZeroGradients();
  /// Takes the gradients of parameters of PyTorch, one for each variable, for the next push. With
  /// `as_they_are` it may push them from their own memory. Else, or where one is missing or is no
  /// floats as they are, it copies them to where Gradients() are, 0 where there is none, and
  /// returns the numbers of those that are left to the caller.
  std::vector<std::size_t> TakeGradients(const Watch& watch, bool as_they_are);
  void Push(double timeout);
  /// applied, gradients, global_step, staleness
  std::tuple<bool, int, std::int64_t, std::uint64_t> Wait(double timeout);
  /// Push(), Wait(), Pull() and Gradients() in one call, with what Wait() returns, and Moves().
  /// Throws as the first two do: HandedIn() tells which. Where the pull fails the moves are -1:
  /// Pull() says why.
  std::tuple<bool, int, std::int64_t, std::uint64_t, std::int64_t> Step(int how,
                                                                        double push_timeout,
                                                                        double wait_timeout);
  /// Of each group: learning rate, weight decay.
  void SetRates(const std::vector<std::tuple<double, double>>& rates);
  void Sample(std::int64_t examples, std::int64_t batch_size, std::int64_t epochs,
              std::int64_t seed, bool in_order);
  /// The int64 of the numbers, none: there is no more; epoch.
  std::tuple<nanobind::bytes, std::int64_t> NextBatch();
  void SayAlive();
  void Metric(const std::string& name, double value);
  /// Returns the global step of the checkpoint.
  std::int64_t Save(double timeout);
  void Leave();
  bool HasLeft() const { return left_; }
  /// Throws while another call is under way.
  void CheckTurn() { const Turn turn(busy_); }
  /// In a child of fork(): what it writes to gradients that it has is no longer its parent's.
  void KeepGradients();

  void Stop();
  bool Stopped();
  std::int64_t GlobalStep();
  /// A push has no outcome yet.
  bool Pushed() const { return pushed_; }
  /// The last Push(), or that of Step(), was taken.
  bool HandedIn() const { return handed_in_; }
  std::string Mode();

 private:
  // Arrays that show one place of the library's.
  struct Shown {
    const void* place = nullptr;
    std::shared_ptr<LentMemory> memory;
    nanobind::object array;
  };
  // Of one variable. Gradients come from few places in turn.
  struct Arrays {
    std::vector<Shown> values, gradients;
    Shown copy;                                   // of its values
    const float* copy_from = nullptr;             // of this pull
    std::size_t gradient = 0;                     // which of `gradients` is lent
    float* lent = nullptr;                        // where it goes if it is no alias
    Watch::Gradient taken;                        // what is copied there, or pushed as it is
    const nanobind::object* in_values = nullptr;  // what the dicts hold
    const nanobind::object* in_gradients = nullptr;
  };
  struct Given;  // arrays as pointers
  struct Kept;
  void CheckIn() const;
  static Shown MakeShown(const void* place, std::shared_ptr<LentMemory> memory,
                         const Variable& variable, Access access);
  const Shown& ShowValues(std::size_t i, const float* values, bool copy);
  const Shown& ShowGradient(std::size_t i, float* gradient);
  void CheckTaken();
  // Of the gradient that is lent.
  float* Lent(std::size_t i) { return arrays_[i].gradients[arrays_[i].gradient].memory->floats(); }
  // Steps of the calls. The GIL is not needed for those that return a status.
  passel_status PushNow(double timeout);
  passel_status WaitNow(double timeout, passel_outcome* outcome);
  passel_status PullNow(int how);
  passel_status WillCopy(int how, bool* copies);
  void ShowPulled();
  void ShowGradients();
  void CopyValues();

  const std::vector<Variable> variables_;
  passel_job* job_ = nullptr;
  std::mutex busy_;
  std::vector<Arrays> arrays_;  // by variable
  // The next push is of these, whose owners are `taken`; empty: of what is lent.
  std::vector<const float*> from_;
  bool dropped_ = false;  // these were given up, by another call between: the next push says so
  nanobind::dict values_, gradients_;
  std::int64_t moves_ = 0;
  bool gradients_lent_ = false;
  bool copies_shown_ = false;  // values_ holds the copy of each variable
  bool copies_ = false;        // the last pull is one
  bool left_ = false;
  bool pushed_ = false;
  bool handed_in_ = false;
  const char* mode_ = nullptr;
  bool rounds_ = false;
};

}  // namespace passel::python

// gradient_source.h - a worker's gradients, one after the other, whatever computes them.
//
// DirectGradients computes each when it is asked for, on this thread (a Model, or towers).
// EngineGradients lets a StepEngine compute. With one step ahead, in the modes that apply at once,
// it has the next step started before it hands one out, so that the engine works while the worker
// pushes; the values of that step do not hold this push yet:
//
//   engine   |   step 1   |   step 2   |   step 3   |
//   worker                | push 1 ..  | push 2 ..  |
//
// so every gradient is staler by what all workers apply in one of its steps: one update for each
// worker. With two ahead the engine has work even when a push takes longer than a step, and every
// gradient is staler by two. That shows in PushOutcome::staleness like any other.
//
// With `update_in_step` the step makes the update too, as long as a push is nothing but additions.
// Such a push begins before its step and ends behind it, here: whoever gets the gradient only
// waits. It ends in any case, so that what was added is counted, and what is counted was added.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "compute/step_engine.h"
#include "nn/model.h"
#include "store/parameter_store.h"
#include "train/batch_source.h"
#include "train/model_plan.h"
#include "train/worker_loop.h"

namespace passel {

/// One gradient that is ready to be pushed, or to be added to one that is, or that was pushed.
struct ComputedGradient {
  GradientBuffer gradient;
  std::uint32_t stamp = 0;  ///< of the pull it was computed on
  BatchResult batch;
  std::size_t examples = 0;
  std::optional<bool> finite;  ///< whether loss and gradient are; none: nobody has looked
  bool updated = false;        ///< its step made the update: there is no gradient to look at
  Ticket ticket;               ///< `updated`, and finite: of the push
  LeftOut left_out;            ///< `updated`: of the update, since it was not finite
  BatchSource::Cursor cursor;  ///< behind its batch
  std::int64_t pull_ns = 0;
  std::int64_t compute_ns = 0;  ///< until it was ready; steps that overlap count in part
};

class GradientSource {
 public:
  virtual ~GradientSource() = default;
  /// None: the last round was completed since the caller looked, nobody comes to the next one.
  /// Errors: the store's and the engine's; those of WorkerCallbacks::check.
  /// `waiting` gradients since the last pull wait to be pushed together with this one. Above 0 it
  /// is computed on the values of that pull, and is overwritten by the next. REQUIRES: 0, of an
  /// engine.
  virtual Result<std::optional<ComputedGradient>> Next(int waiting) = 0;
  /// Nothing is under way any more when this returns. What was started and not handed out is void,
  /// but for updates that were made: those pushes are ended, and their number is returned.
  virtual Result<int> Drain() = 0;
};

/// What both kinds need. Everything outlives the source.
struct GradientSourceParts {
  const WorkerOptions& options;
  const WorkerCallbacks& callbacks;
  const ModelLayout& layout;
  ParameterStore& store;
  BatchSource& batches;
  Examples train;
  bool copy_pays = false;  ///< where others update the values at any time: see PullModeFor()
  std::vector<std::vector<RowPart>>* params;  ///< set at each pull
};

/// What WorkerOptions::pull means in the mode in force. Copies only if they pay: CopyPays().
PullMode PullModeFor(const WorkerOptions& options, bool copy_pays, Mode mode);
/// Whether a private copy of the values of `store` is faster than a view, in the async modes.
bool CopyPays(const ParameterStore& store);

/// `addend`: the memory of gradients that are to be added to another, of the variables of the
/// store. None may be asked for without it.
std::unique_ptr<GradientSource> MakeDirectGradients(const GradientSourceParts& parts, Model& model,
                                                    const GradientBuffer& addend);
std::unique_ptr<GradientSource> MakeEngineGradients(const GradientSourceParts& parts,
                                                    const EngineUse& use);

}  // namespace passel

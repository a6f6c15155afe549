// job_step.cc - what a step of a job is made of: values, gradients, and the update.

#include <cstring>
#include <utility>

#include "python/job.h"
#include "python/waits.h"

namespace passel::python {

namespace nb = nanobind;

passel_status Job::WillCopy(int how, bool* copies) {
  const char* mode = mode_;
  if (how == PASSEL_PULL_AUTO) {
    const passel_status status = passel_mode(job_, &mode);
    if (status != PASSEL_OK) return status;
  }
  if (mode != mode_) {  // names stay where they are
    mode_ = mode;
    rounds_ = std::strcmp(mode, "barrier") == 0 || std::strcmp(mode, "replicas") == 0;
  }
  *copies = how == PASSEL_PULL_COPY || (how == PASSEL_PULL_AUTO && !rounds_);
  return PASSEL_OK;
}

Job::Shown Job::MakeShown(const void* place, std::shared_ptr<LentMemory> memory,
                          const Variable& variable, Access access) {
  nb::object array = MakeArray(memory, variable, access);
  return {place, std::move(memory), std::move(array)};
}

// Without a copy: the place itself, where that can be.
const Job::Shown& Job::ShowValues(std::size_t i, const float* values, bool copy) {
  Arrays& own = arrays_[i];
  const Variable& variable = variables_[i];
  if (!copy) {
    for (const Shown& shown : own.values) {
      if (shown.place == values) return shown;
    }
    if (auto memory = LentMemory::Alias(values, variable.elements)) {
      own.values.reserve(8);  // pointers to what is in it are kept
      if (own.values.size() == own.values.capacity()) own.values.clear();
      own.in_values = nullptr;
      return own.values.emplace_back(MakeShown(values, std::move(memory), variable, Access::kRead));
    }
  }
  if (own.copy.memory == nullptr) {
    own.copy = MakeShown(nullptr, LentMemory::Own(variable.elements), variable, Access::kRead);
  }
  own.copy_from = values;
  return own.copy;
}

const Job::Shown& Job::ShowGradient(std::size_t i, float* gradient) {
  Arrays& own = arrays_[i];
  for (std::size_t k = 0; k < own.gradients.size(); ++k) {
    if (own.gradients[k].place != gradient) continue;
    own.gradient = k;
    return own.gradients[k];
  }
  auto memory = LentMemory::Alias(gradient, variables_[i].elements);
  if (memory == nullptr) memory = LentMemory::Own(variables_[i].elements);
  own.gradients.reserve(8);
  if (own.gradients.size() == own.gradients.capacity()) own.gradients.clear();
  own.in_gradients = nullptr;
  own.gradient = own.gradients.size();
  return own.gradients.emplace_back(
      MakeShown(gradient, std::move(memory), variables_[i], Access::kWrite));
}

void Job::CopyValues() {
  const nb::gil_scoped_release without;
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const float* const from = std::exchange(arrays_[i].copy_from, nullptr);
    if (from == nullptr) continue;
    std::memcpy(arrays_[i].copy.memory->floats(), from, variables_[i].elements * sizeof(float));
  }
}

// The copy is made here, into memory that outlives the job.
passel_status Job::PullNow(int how) {
  passel_status status = WillCopy(how, &copies_);
  if (status == PASSEL_OK) status = passel_pull(job_, PASSEL_PULL_VIEW);
  if (!copies_ || !copies_shown_) return status;
  for (std::size_t i = 0; i < variables_.size() && status == PASSEL_OK; ++i) {
    const float* values = nullptr;
    status = passel_values(job_, i, &values, nullptr);
    if (status != PASSEL_OK) break;
    std::memcpy(arrays_[i].copy.memory->floats(), values, variables_[i].elements * sizeof(float));
  }
  return status;
}

// After PullNow().
void Job::ShowPulled() {
  if (copies_ && copies_shown_) return;
  copies_shown_ = false;
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const float* values = nullptr;
    Check(passel_values(job_, i, &values, nullptr));
    const Shown& shown = ShowValues(i, values, copies_);
    if (arrays_[i].in_values == &shown.array) continue;
    arrays_[i].in_values = &shown.array;
    ++moves_;
    values_[nb::str(variables_[i].name.c_str())] = shown.array;
  }
  if (copies_) CopyValues();
  copies_shown_ = copies_;
}

nb::dict Job::Pull(int how) {
  const Turn turn(busy_);
  CheckIn();
  WithoutGil([&] { return PullNow(how); });
  ShowPulled();
  return values_;
}

void Job::ShowGradients() {
  if (gradients_lent_) return;
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    float* gradient = nullptr;
    Check(passel_gradient(job_, i, &gradient, nullptr));
    arrays_[i].lent = gradient;
    const Shown& shown = ShowGradient(i, gradient);
    if (arrays_[i].in_gradients == &shown.array) continue;
    arrays_[i].in_gradients = &shown.array;
    ++moves_;
    gradients_[nb::str(variables_[i].name.c_str())] = shown.array;
  }
  gradients_lent_ = true;
}

// At its end PyTorch has the memory of its gradients again, unless they wait for a push.
struct Job::Kept {
  explicit Kept(Job& of) : job(of) {}
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() {
    if (waits) return;
    job.from_.clear();
    for (Arrays& own : job.arrays_) own.taken = {};
  }
  Job& job;
  bool waits = false;
};

nb::dict Job::Gradients() {
  const Turn turn(busy_);
  CheckIn();
  dropped_ = dropped_ || !from_.empty();
  const Kept kept(*this);
  ShowGradients();
  return gradients_;
}

void Job::ZeroGradients() {
  const Turn turn(busy_);
  CheckIn();
  const nb::gil_scoped_release without;
  for (std::size_t i = 0; gradients_lent_ && i < variables_.size(); ++i) {
    std::memset(Lent(i), 0, variables_[i].elements * sizeof(float));
  }
}

std::vector<std::size_t> Job::TakeGradients(const Watch& watch, bool as_they_are) {
  using enum Watch::Gradient::Kind;
  const Turn turn(busy_);
  CheckIn();
  std::vector<std::size_t> others;
  from_.clear();
  dropped_ = handed_in_ = false;
  if (!gradients_lent_) return others;
  Kept kept(*this);
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    Watch::Gradient gradient = watch.GradientOf(i);
    if (gradient.kind == kMisshapen) {
      Raise(PASSEL_INVALID_ARGUMENT,
            "the gradient of \"" + variables_[i].name +
                "\" has another shape than the parameter: set p.grad to a tensor of its shape");
    }
    if (gradient.kind == kOther) others.push_back(i);
    as_they_are = as_they_are && gradient.kind == kFloats;
    arrays_[i].taken = std::move(gradient);
  }
  if (as_they_are) {
    for (const Arrays& own : arrays_) from_.push_back(own.taken.floats);
    kept.waits = true;
    return others;
  }
  {
    const nb::gil_scoped_release without;
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      const Watch::Gradient& taken = arrays_[i].taken;
      const std::size_t bytes = variables_[i].elements * sizeof(float);
      if (taken.kind == kFloats) std::memcpy(Lent(i), taken.floats, bytes);
      if (taken.kind == kNone) std::memset(Lent(i), 0, bytes);
    }
  }
  return others;
}

void Job::CheckTaken() {
  if (!std::exchange(dropped_, false)) return;
  Raise(PASSEL_FAILED_PRECONDITION,
        "save() or gradients of this job, called in the middle of step() by a handler of a signal "
        "or another thread, has taken the place of its gradient, which was not handed in: call "
        "step() again, and these between two steps");
}

passel_status Job::PushNow(double timeout) {
  handed_in_ = false;
  for (std::size_t i = 0; from_.empty() && gradients_lent_ && i < variables_.size(); ++i) {
    const Shown& shown = arrays_[i].gradients[arrays_[i].gradient];
    if (shown.memory->IsAlias()) continue;
    std::memcpy(arrays_[i].lent, shown.memory->floats(), variables_[i].elements * sizeof(float));
  }
  const passel_status status =
      from_.empty() ? passel_push(job_, timeout) : passel_push_from(job_, from_.data(), timeout);
  // What is no push leaves the gradient as it is.
  if (status != PASSEL_INVALID_ARGUMENT && status != PASSEL_FAILED_PRECONDITION &&
      status != PASSEL_DIVERGED) {
    gradients_lent_ = false;
  }
  handed_in_ = status == PASSEL_OK;
  pushed_ = pushed_ || handed_in_;
  return status;
}

passel_status Job::WaitNow(double timeout, passel_outcome* outcome) {
  outcome->struct_size = sizeof *outcome;
  const passel_status status = passel_wait(job_, timeout, outcome);
  pushed_ = pushed_ && status == PASSEL_DEADLINE_EXCEEDED;
  return status;
}

void Job::Push(double timeout) {
  const Turn turn(busy_);
  CheckIn();
  CheckTaken();
  const Kept kept(*this);
  WithoutGil([&] { return PushNow(timeout); });
}

std::tuple<bool, int, std::int64_t, std::uint64_t> Job::Wait(double timeout) {
  const Turn turn(busy_);
  CheckIn();
  passel_outcome outcome{};
  Sliced(timeout, [&](double slice) { return WaitNow(slice, &outcome); });
  return {outcome.applied != 0, outcome.gradients, outcome.global_step, outcome.staleness};
}

std::tuple<bool, int, std::int64_t, std::uint64_t, std::int64_t> Job::Step(int how,
                                                                           double push_timeout,
                                                                           double wait_timeout) {
  const Turn turn(busy_);
  CheckIn();
  CheckTaken();
  {
    const Kept kept(*this);
    WithoutGil([&] { return PushNow(push_timeout); });
  }
  passel_outcome outcome{};
  passel_status pulled = PASSEL_OK;
  Sliced(wait_timeout, [&](double slice) {
    const passel_status status = WaitNow(slice, &outcome);
    if (status == PASSEL_OK) pulled = PullNow(how);
    return status;
  });
  if (pulled == PASSEL_OK) {
    ShowPulled();
    ShowGradients();
  }
  return {outcome.applied != 0, outcome.gradients, outcome.global_step, outcome.staleness,
          pulled == PASSEL_OK ? moves_ : -1};
}

}  // namespace passel::python

#include "python/job.h"

#include <nanobind/ndarray.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "python/errors.h"
#include "python/waits.h"

namespace passel::python {
namespace {

namespace nb = nanobind;

// So long a join that is not wanted any more may take to end.
constexpr std::chrono::seconds kOpeningEnds{2};

// passel_open() in a thread of its own, since it cannot be asked to wait for less.
struct Opening {
  std::vector<std::string> settings;
  std::vector<Variable> variables;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::atomic<bool> unwanted{false};
  passel_status status = PASSEL_INTERNAL;
  std::string sentence;
  passel_job* job = nullptr;
};

void Open(const std::shared_ptr<Opening>& opening) {
  std::vector<const char*> settings;
  for (const std::string& setting : opening->settings) settings.push_back(setting.c_str());
  std::vector<passel_variable> variables;
  for (const Variable& v : opening->variables) {
    variables.push_back(
        {sizeof(passel_variable), v.name.c_str(), v.shape.data(), v.shape.size(), v.group});
  }
  const passel_options options{sizeof options, settings.data(), settings.size()};
  passel_job* job = nullptr;
  passel_check_waits(
      [](void* of) -> std::int32_t { return static_cast<Opening*>(of)->unwanted ? 1 : 0; },
      opening.get());
  const passel_status status = passel_open(&options, variables.data(), variables.size(), &job);
  const std::lock_guard lock(opening->mutex);
  opening->status = status;
  opening->sentence = passel_error();
  opening->job = job;
  opening->done = true;
  if (opening->unwanted && job != nullptr) passel_leave(job);
  opening->changed.notify_all();
}

// Signals are the main thread's to handle.
void StartThread(const std::shared_ptr<Opening>& opening) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([opening] { Open(opening); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

Job::Job(std::vector<std::string> settings, std::vector<Variable> variables)
    : variables_(variables), arrays_(variables.size()) {
  const auto opening = std::make_shared<Opening>();
  opening->settings = std::move(settings);
  opening->variables = std::move(variables);
  StartThread(opening);
  for (bool done = false; !done;) {
    {
      const nb::gil_scoped_release without;
      std::unique_lock lock(opening->mutex);
      done = opening->changed.wait_for(lock, std::chrono::duration<double>(kSlice),
                                       [&] { return opening->done; });
    }
    if (done) break;
    try {
      CheckSignals();
    } catch (...) {
      const nb::gil_scoped_release without;
      std::unique_lock lock(opening->mutex);
      opening->unwanted = true;
      if (opening->job != nullptr) passel_leave(opening->job);
      // Whoever joins again then finds no other opening.
      opening->changed.wait_for(lock, kOpeningEnds, [&] { return opening->done; });
      throw;
    }
  }
  if (opening->status != PASSEL_OK) Raise(opening->status, opening->sentence);
  job_ = opening->job;
}

Job::~Job() {
  if (job_ != nullptr && !left_) passel_leave(job_);
}

std::tuple<int, int, bool, bool, std::string> Job::Describe() {
  passel_description about{};
  about.struct_size = sizeof about;
  Check(passel_describe(job_, &about));
  return {about.worker, about.workers, about.is_chief != 0, about.is_alone != 0, about.job_id};
}

// Of each variable some, `each` for each.
struct Job::Given {
  Given(const std::vector<Variable>& variables, const nb::list& arrays) {
    const std::size_t each = variables.empty() ? 0 : arrays.size() / variables.size();
    for (std::size_t i = 0; i < variables.size() * each; ++i) {
      const nb::object array = arrays[i];
      if (array.is_none()) {
        pointers.push_back(nullptr);
        continue;
      }
      kept.push_back(nb::cast<Floats>(array));
      if (kept.back().size() != variables[i / each].elements) {
        Raise(PASSEL_INVALID_ARGUMENT, "the first value of \"" + variables[i / each].name +
                                           "\" has another size than the variable: give its shape");
      }
      pointers.push_back(kept.back().data());
    }
  }
  using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
  std::vector<Floats> kept;
  std::vector<const float*> pointers;
};

void Job::Initialize(const nb::list& values, std::optional<std::int64_t> step,
                     const std::vector<std::string>& names, const nb::list& slots, double timeout) {
  const Turn turn(busy_);
  CheckIn();
  const Given first(variables_, values), of_slots(variables_, slots);
  passel_optimizer_state state{};
  state.struct_size = sizeof state;
  state.step = step.value_or(0);
  std::vector<const char*> pointers;
  for (const std::string& name : names) pointers.push_back(name.c_str());
  state.num_slots = names.size();
  state.names = pointers.data();
  state.slots = of_slots.pointers.data();
  Sliced(timeout, [&](double slice) {
    return step ? passel_initialize_with(job_, first.pointers.data(), &state, slice)
                : passel_initialize(job_, first.pointers.data(), slice);
  });
}

std::tuple<std::uint64_t, std::int64_t, bool, bool> Job::Beginning() {
  const Turn turn(busy_);
  CheckIn();
  passel_first_values first{};
  first.struct_size = sizeof first;
  WithoutGil([&] { return passel_beginning(job_, &first); });
  return {first.number, first.global_step, first.is_own != 0, first.is_of_checkpoint != 0};
}

std::tuple<std::int64_t, std::vector<std::string>, nb::list> Job::ReadState() {
  const Turn turn(busy_);
  CheckIn();
  passel_optimizer_state state{};
  state.struct_size = sizeof state;
  WithoutGil([&] { return passel_read_optimizer_state(job_, &state); });
  nb::list arrays;
  for (std::size_t i = 0; i < variables_.size() * state.num_slots; ++i) {
    const Variable& variable = variables_[i / state.num_slots];
    auto memory = LentMemory::Own(variable.elements);
    arrays.append(MakeArray(memory, variable, Access::kWrite));  // an exception without memory
    std::memcpy(memory->floats(), state.slots[i], variable.elements * sizeof(float));
  }
  return {state.step, {state.names, state.names + state.num_slots}, std::move(arrays)};
}

void Job::SetRates(const std::vector<std::tuple<double, double>>& rates) {
  const Turn turn(busy_);
  CheckIn();
  std::vector<passel_rates> given;
  for (const auto& [learning_rate, weight_decay] : rates) {
    given.push_back({sizeof(passel_rates), learning_rate, weight_decay});
  }
  WithoutGil([&] { return passel_set_rates(job_, given.data(), given.size()); });
}

void Job::Sample(std::int64_t examples, std::int64_t batch_size, std::int64_t epochs,
                 std::int64_t seed, bool in_order) {
  const Turn turn(busy_);
  CheckIn();
  passel_sampling sampling{};
  sampling.struct_size = sizeof sampling;
  sampling.examples = examples;
  sampling.batch_size = batch_size;
  sampling.epochs = epochs;
  sampling.seed = seed;
  sampling.in_order = in_order ? 1 : 0;
  WithoutGil([&] { return passel_sample(job_, &sampling); });
}

std::tuple<nb::bytes, std::int64_t> Job::NextBatch() {
  const Turn turn(busy_);
  CheckIn();
  passel_batch batch{};
  batch.struct_size = sizeof batch;
  WithoutGil([&] { return passel_next_batch(job_, &batch); });
  return {nb::bytes(batch.examples, batch.count * sizeof(std::int64_t)), batch.epoch};
}

void Job::SayAlive() {
  const Turn turn(busy_);
  CheckIn();
  WithoutGil([&] { return passel_say_alive(job_); });
}

void Job::Metric(const std::string& name, double value) {
  const Turn turn(busy_);
  CheckIn();
  Check(passel_metric(job_, name.c_str(), value));
}

std::int64_t Job::Save(double timeout) {
  const Turn turn(busy_);
  CheckIn();
  gradients_lent_ = false;
  dropped_ = dropped_ || !from_.empty();
  from_.clear();
  std::int64_t step = 0;
  WithoutGil([&] { return passel_save(job_, timeout, &step); });
  return step;
}

void Job::Leave() {
  const Turn turn(busy_);
  CheckIn();
  {
    // Whoever holds arrays keeps what is in them. Those that we alone hold go.
    std::vector<std::weak_ptr<LentMemory>> held;
    for (const Arrays& own : arrays_) {
      for (const auto* list : {&own.values, &own.gradients}) {
        for (const Shown& shown : *list) held.push_back(shown.memory);
      }
    }
    gradients_lent_ = copies_shown_ = false;
    from_.clear();
    arrays_.assign(variables_.size(), Arrays());
    values_ = nb::dict();
    gradients_ = nb::dict();
    for (const auto& each : held) {
      if (const auto memory = each.lock()) memory->Detach();
    }
  }
  // From here on no other thread calls the library, which may save a last checkpoint.
  left_ = true;
  WithoutGil([&] { return passel_leave(job_); });
}

// No Turn: a thread of the parent may have had it.
void Job::KeepGradients() {
  gradients_lent_ = false;  // no Push() copies into what is lent
  for (const Arrays& own : arrays_) {
    for (const Shown& shown : own.gradients) shown.memory->Forget();
  }
}

void Job::CheckIn() const {
  if (!left_) return;
  Raise(PASSEL_FAILED_PRECONDITION, "this process has left the job: join it again");
}

void Job::Stop() {
  CheckIn();
  WithoutGil([&] { return passel_stop(job_); });
}

bool Job::Stopped() {
  CheckIn();
  std::int32_t stopped = 0;
  Check(passel_stopped(job_, &stopped));
  return stopped != 0;
}

std::int64_t Job::GlobalStep() {
  CheckIn();
  std::int64_t step = 0;
  Check(passel_global_step(job_, &step));
  return step;
}

std::string Job::Mode() {
  CheckIn();
  const char* mode = nullptr;
  Check(passel_mode(job_, &mode));
  return mode;
}

}  // namespace passel::python

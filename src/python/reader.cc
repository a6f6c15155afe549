#include "python/reader.h"

#include <cstring>
#include <utility>

#include "python/arrays.h"
#include "python/errors.h"
#include "python/waits.h"

namespace passel::python {

namespace nb = nanobind;

Reader::Reader(const std::optional<std::string>& job_id, double timeout) {
  const char* const name = job_id ? job_id->c_str() : nullptr;
  Sliced(
      timeout, [&](double slice) { return passel_attach(name, slice, &reader_); },
      PASSEL_NOT_FOUND);
  try {
    Describe();
  } catch (...) {
    passel_detach(reader_);
    throw;
  }
}

Reader::~Reader() {
  if (reader_ != nullptr) passel_detach(reader_);
}

void Reader::Describe() {
  std::size_t count = 0;
  Check(passel_reader_count(reader_, &count));
  for (std::size_t i = 0; i < count; ++i) {
    passel_variable told{};
    told.struct_size = sizeof told;
    Check(passel_reader_variable(reader_, i, &told));
    Variable& variable = variables_.emplace_back();
    variable.name = told.name;
    variable.shape.assign(told.shape, told.shape + told.rank);
    for (const std::int64_t d : variable.shape) variable.elements *= static_cast<std::size_t>(d);
    copies_.push_back(LentMemory::Own(variable.elements));
    values_[nb::str(told.name)] = MakeArray(copies_.back(), variable, Access::kWrite);
  }
}

std::vector<std::tuple<std::string, std::vector<std::int64_t>>> Reader::Variables() const {
  std::vector<std::tuple<std::string, std::vector<std::int64_t>>> all;
  for (const Variable& v : variables_) all.emplace_back(v.name, v.shape);
  return all;
}

void Reader::CheckAttached() const {
  if (reader_ != nullptr) return;
  Raise(PASSEL_FAILED_PRECONDITION, "this reader is detached: attach to the job again");
}

std::tuple<std::int64_t, std::int64_t, bool> Reader::Read(int how, double timeout) {
  const Turn turn(busy_);
  CheckAttached();
  passel_reading reading{};
  reading.struct_size = sizeof reading;
  passel_status status;
  std::string sentence;
  const Handlers handlers;
  {
    const nb::gil_scoped_release without;
    status = passel_read(reader_, how, timeout, &reading);
    for (std::size_t i = 0; i < variables_.size() && status == PASSEL_OK; ++i) {
      const float* values = nullptr;
      status = passel_reader_values(reader_, i, &values, nullptr);
      if (status != PASSEL_OK) break;
      std::memcpy(copies_[i]->floats(), values, variables_[i].elements * sizeof(float));
    }
    if (status != PASSEL_OK) sentence = passel_error();
  }
  handlers.Throw();
  if (status != PASSEL_OK) Raise(status, sentence);
  return {reading.global_step, reading.last_global_step, reading.is_exact != 0};
}

std::int64_t Reader::WaitVersion(std::int64_t global_step, double timeout) {
  const Turn turn(busy_);
  CheckAttached();
  std::int64_t now = 0;
  Sliced(timeout,
         [&](double slice) { return passel_wait_version(reader_, global_step, slice, &now); });
  return now;
}

void Reader::Detach() {
  const Turn turn(busy_);
  CheckAttached();
  Check(passel_detach(std::exchange(reader_, nullptr)));
}

}  // namespace passel::python

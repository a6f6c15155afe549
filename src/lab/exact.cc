#include "lab/exact.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "optim/update_kernels.h"

namespace passel::lab {
namespace {

constexpr std::size_t kLine = 16;  // floats

std::size_t Padded(std::size_t elements) { return (elements + kLine - 1) / kLine * kLine; }

Status Differs(const Cell& cell, const char* what, std::size_t element, float is, float wanted) {
  return Internal(fmt::format("{}: {} {} is {}, but the optimizer's loop gives {}", CellName(cell),
                              what, element, is, wanted));
}

Status Compare(const Cell& cell, const char* what, const float* is, const float* wanted) {
  if (std::memcmp(is, wanted, cell.elements * sizeof(float)) == 0) return {};
  std::size_t i = 0;
  while (std::memcmp(is + i, wanted + i, sizeof(float)) == 0) ++i;
  return Differs(cell, what, i, is[i], wanted[i]);
}

}  // namespace

Result<PrivateLoop> PrivateLoop::Make(const Cell& cell, const StorePlan& plan) {
  PrivateLoop loop;
  loop.elements_ = cell.elements;
  loop.num_slots_ = NumSlots(plan.optimizer);
  loop.scalars_ = Prepare(plan.optimizer, kCountingStep);
  const std::size_t floats = Padded(cell.elements);
  const bool copies = cell.op == CellOp::kPushPull;
  const auto arrays = static_cast<std::size_t>(1 + loop.num_slots_) + 1 + (copies ? 1 : 0);
  loop.bytes_ = arrays * floats * sizeof(float);
  void* memory =
      ::mmap(nullptr, loop.bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return ResourceExhausted(fmt::format("{}: {} bytes of private memory are not to be had",
                                         CellName(cell), loop.bytes_));
  }
  loop.memory_ = memory;
  // A hint: where it is refused the pages are 4 KiB, as everybody's.
  ::madvise(memory, loop.bytes_, cell.pages == CellPages::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  auto* next = static_cast<float*>(memory);
  const auto take = [&] { return std::exchange(next, next + floats); };
  for (int a = 0; a <= loop.num_slots_; ++a) loop.arrays_[a] = take();
  loop.gradient_ = take();
  if (copies) loop.copy_ = take();
  return loop;
}

PrivateLoop::PrivateLoop(PrivateLoop&& other) noexcept
    : elements_(other.elements_),
      num_slots_(other.num_slots_),
      scalars_(other.scalars_),
      gradient_(other.gradient_),
      copy_(other.copy_),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_) {
  std::copy(std::begin(other.arrays_), std::end(other.arrays_), std::begin(arrays_));
}

PrivateLoop::~PrivateLoop() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

void PrivateLoop::Update() {
  if (copy_ != nullptr) CopyValues(copy_, values(), elements_);
  Apply(scalars_, values(), slots(), gradient_, elements_);
}

void FillForCheck(const StorePlan& plan, std::size_t elements, float* values, float* const* slots) {
  for (std::size_t i = 0; i < elements; ++i) {
    values[i] = 0.001F * static_cast<float>(i % 1000) - 0.5F;
  }
  for (int s = 0; s < NumSlots(plan.optimizer); ++s) {
    std::fill_n(slots[s], elements, SlotInitialValue(plan.optimizer, s));
  }
}

void FillGradientForCheck(int writer, std::size_t elements, float* gradient) {
  for (std::size_t i = 0; i < elements; ++i) {
    const auto step = static_cast<int>((i + static_cast<std::size_t>(writer)) % 17) - 8;
    gradient[i] = 1e-3F * static_cast<float>(step);
  }
}

Status CheckAgainstLoop(const Cell& cell, const StorePlan& plan, const ShardMemory& memory,
                        const PrivateLoop& scratch) {
  const auto writers = static_cast<std::size_t>(cell.writers);
  FillForCheck(plan, cell.elements, scratch.values(), scratch.slots());
  // In pieces: the gradients of all writers are needed at once.
  constexpr std::size_t kPiece = 4096;
  std::vector<std::vector<float>> gradients(writers, std::vector<float>(kPiece + 17));
  std::vector<const float*> here(writers);
  std::vector<float> mean(kPiece);
  for (std::size_t begin = 0; begin < cell.elements; begin += kPiece) {
    const std::size_t n = std::min(kPiece, cell.elements - begin);
    float* slots[kMaxSlots] = {};
    for (int s = 0; s < memory.num_slots; ++s) slots[s] = scratch.slots()[s] + begin;
    for (std::size_t k = 0; k < writers; ++k) {
      // The pattern repeats every 17 elements.
      FillGradientForCheck(static_cast<int>(k), n + 17, gradients[k].data());
      here[k] = gradients[k].data() + begin % 17;
    }
    std::int64_t step = 0;
    for (int round = 0; round < kCheckRounds; ++round) {
      if (cell.sharing.in_rounds()) {
        SumGradients(mean.data(), here.data(), cell.writers, static_cast<float>(cell.writers), n);
        Apply(Prepare(plan.optimizer, ++step), scratch.values() + begin, slots, mean.data(), n);
        continue;
      }
      for (std::size_t k = 0; k < writers; ++k) {
        Apply(Prepare(plan.optimizer, ++step), scratch.values() + begin, slots, here[k], n);
      }
    }
  }
  PASSEL_RETURN_IF_ERROR(Compare(cell, "value", memory.values, scratch.values()));
  for (int s = 0; s < memory.num_slots; ++s) {
    PASSEL_RETURN_IF_ERROR(
        Compare(cell, s == 0 ? "slot 0 of" : "slot 1 of", memory.slots[s], scratch.slots()[s]));
  }
  return {};
}

void FillForCounting(const StorePlan& plan, std::size_t elements, float* values,
                     float* const* slots) {
  std::fill_n(values, elements, 0.0F);
  for (int s = 0; s < NumSlots(plan.optimizer); ++s) {
    std::fill_n(slots[s], elements, CellOptimizerOf(plan.optimizer.kind)->slots[s]);
  }
}

void FillGradientForCounting(std::size_t elements, float* gradient) {
  std::fill_n(gradient, elements, -1.0F);
}

Result<std::int64_t> CountLost(const Cell& cell, const StorePlan& plan, const ShardMemory& memory,
                               std::int64_t pushes) {
  const CellOptimizer& optimizer = *CellOptimizerOf(plan.optimizer.kind);
  const float* counts = optimizer.counts_in_slot ? memory.slots[0] : memory.values;
  const float start = optimizer.counts_in_slot ? optimizer.slots[0] : 0;
  std::int64_t lost = 0;
  for (std::size_t i = 0; i < cell.elements; ++i) {
    const double count = static_cast<double>(counts[i]) - static_cast<double>(start);
    if (!(count >= 0 && count <= static_cast<double>(pushes)) || count != std::floor(count)) {
      return Internal(fmt::format("{}: element {} counts {} updates after {} pushes",
                                  CellName(cell), i, count, pushes));
    }
    lost += pushes - static_cast<std::int64_t>(count);
  }
  if (lost != 0 && LosesNothing(cell)) {
    return Internal(
        fmt::format("{}: {} of {} x {} updates of elements were lost, where none may be",
                    CellName(cell), lost, pushes, cell.elements));
  }
  return lost;
}

Status CheckRounds(const Cell& cell, const StorePlan& plan, const ShardMemory& memory,
                   std::int64_t first, std::int64_t last) {
  float values[kLine], slot0[kLine], slot1[kLine], gradient[kLine];
  float* slots[kMaxSlots] = {slot0, slot1};
  FillForCounting(plan, kLine, values, slots);
  FillGradientForCounting(kLine, gradient);
  for (std::int64_t round = first; round <= last; ++round) {
    Apply(Prepare(plan.optimizer, round), values, slots, gradient, kLine);
  }
  const auto same = [&](const char* what, const float* is, float wanted) -> Status {
    for (std::size_t i = 0; i < cell.elements; ++i) {
      if (is[i] != wanted) return Differs(cell, what, i, is[i], wanted);
    }
    return {};
  };
  PASSEL_RETURN_IF_ERROR(same("value", memory.values, values[0]));
  for (int s = 0; s < memory.num_slots; ++s) {
    PASSEL_RETURN_IF_ERROR(same(s == 0 ? "slot 0 of" : "slot 1 of", memory.slots[s], slots[s][0]));
  }
  return {};
}

}  // namespace passel::lab

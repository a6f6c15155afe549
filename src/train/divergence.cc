#include "train/divergence.h"

#include <fmt/core.h>

namespace passel {

Status NotFiniteSoNotPushed(const WhereDiverged& where, const std::string& what) {
  return Diverged(
      fmt::format("{}: {} is not finite at local step {} (global step {}), so it was not pushed: "
                  "lower --learning_rate (or use --on_nan skip)",
                  where.task, what, where.local_step, where.global_step));
}

Status NothingButSkips(const WhereDiverged& where, int count) {
  return Diverged(
      fmt::format("{}: {} gradients in a row were not finite, the last at global step {}, so "
                  "training cannot go on: lower --learning_rate",
                  where.task, count, where.global_step));
}

Status LeftOutOfUpdate(const WhereDiverged& where, const std::string& variable,
                       std::uint64_t elements) {
  return Diverged(fmt::format(
      "{}: the gradient of {} is not finite at local step {} (global step {}): {} elements were "
      "left out of that update: lower --learning_rate (or use --on_nan skip, which looks before "
      "it pushes)",
      where.task, variable, where.local_step, where.global_step, elements));
}

Status NotFiniteAtTheEnd(const WhereDiverged& where, const std::string& what) {
  return Diverged(
      fmt::format("{}: {} is not finite after the last update (global step {}): lower "
                  "--learning_rate",
                  where.task, what, where.global_step));
}

}  // namespace passel

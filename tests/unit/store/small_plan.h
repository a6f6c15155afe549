// small_plan.h - a plan of one small variable, for tests of what surrounds the values.

#pragma once

#include <utility>

#include "store/store_plan.h"

namespace passel {

inline StorePlan SmallPlan(int workers) {
  StorePlan plan;
  plan.num_workers = workers;
  VariableInfo v;
  v.name = v.logical = "w";
  v.shape = {64};
  plan.variables = *VariableTable::Build({v}, 1);
  return plan;
}

}  // namespace passel

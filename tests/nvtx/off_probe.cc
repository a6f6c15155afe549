// What is left of the ranges in a build without them: tool_test.cc runs this with a tool in the
// environment.

#include <cstdio>

#include "base/nvtx.h"

int main() {
  using namespace passel;
  nvtx::Initialize();
  nvtx::NameThread("probe");
  nvtx::WarnIfMissing();
  nvtx::Range range(nvtx::Event::kStep, 1);
  nvtx::Span span(nvtx::Event::kRound, 1);
  nvtx::Mark(nvtx::Event::kWorkerDied, 1);
  range.Close();
  static_assert(!nvtx::kBuiltIn);
  std::printf("built %s\n", nvtx::Describe().c_str());
  return 0;
}

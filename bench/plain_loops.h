// plain_loops.h - what a compiler makes of the simplest loops for this very machine.

#pragma once

#include <cstddef>

namespace passel::bench {

/// a[i] = b[i] + s c[i]: STREAM's triad, 12 bytes an element (the read of a's lines that a plain
/// store brings along is not counted, as in STREAM).
void Triad(float* a, const float* b, const float* c, float s, std::size_t n);

}  // namespace passel::bench

// rows.h - the rows of gpu_micro, by topic. Each function prints its rows and throws nothing.

#pragma once

#include "bench/gpu/gpu.h"

namespace gpu_micro {

void MeasureLaunches(const Gpu& gpu);      // launches.cc
void MeasureCopyNodes(const Gpu& gpu);     // copy_nodes.cc
void MeasureColdKernels(const Gpu& gpu);   // cold_kernels.cu
void MeasureProgrammatic(const Gpu& gpu);  // programmatic.cu
void MeasureFlag(const Gpu& gpu);          // copy_nodes.cc
void MeasureClaims(const Gpu& gpu);        // atomics.cu
void MeasureProcesses();                   // processes.cc
void MeasureBarriers(const Gpu& gpu);      // barriers.cu
void MeasureAdditions(const Gpu& gpu);     // atomics.cu
void MeasureCopies(const Gpu& gpu);        // memory.cc

/// The argument that makes the program one of those that MeasureProcesses() starts; the number of
/// a socket follows. Not for users.
constexpr char kInTurnArgument[] = "--in-turn";
/// What such a program does. The value is its exit code.
int RunInTurn(int socket);

}  // namespace gpu_micro

// device_arena.h - the parameters of a job in the memory of a GPU, shared by the workers on it, and
// by those on other GPUs that reach that memory over NVLink.
//
// One worker creates it, the others import it by its file descriptor; each then has an object like
// this, with gradient memory of its own. Inside lie, for each shard, the claims of its blocks, its
// values and its slot variables, behind a header that says which arena this is:
//
//   | header | claims | values | slots ... | claims | values | slots ... |
//   | 4 KiB  |          shard 0            |           shard 1           |
//
// Steps of an engine that was given the arena (StepEngineOptions::arena) read the values where they
// are and leave their gradients here. Apply() hands a gradient in; or a step adds to the values
// itself (StepEngine::StartUpdate()). For a process on another GPU the arena is remote(): a step
// copies the values into its own GPU's memory first, gradients stay there, and a push reaches over.
//
// Threads    That of the engine; one at a time.
// Life       Before the arena ends: engines that were given it.
// Errors     Returned. After kUnavailable or kInternal everything on this GPU is lost for the
//            process.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/block_sweep.h"
#include "base/deadline.h"
#include "base/status.h"

namespace passel {

/// What creator and importers must agree on, and what is this process's own.
struct DeviceArenaShape {
  struct Shard {
    std::size_t floats = 0;        ///< padding included
    std::size_t block_floats = 0;  ///< for one claim; a multiple of 16
  };
  std::vector<Shard> shards;
  int slots = 0;                ///< slot variables of the optimizer
  std::uint64_t id = 0;         ///< of this arena; not 0
  std::uint64_t plan_hash = 0;  ///< of all that gives the floats their meaning
  /// Processes on other GPUs use it too: everybody's updates are at a scope that holds them all.
  bool several_gpus = false;
  int gradient_slots = 1;  ///< this process's own; others may have more or fewer
  /// An importer names the GPU whose memory it is, by its UUID; empty: its own GPU.
  std::string home;
};

class DeviceArena {
 public:
  virtual ~DeviceArena() = default;
  DeviceArena() = default;
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  /// The descriptor of the creator; -1 in a process that imported it. The memory lives as long as
  /// somebody holds such a descriptor or maps it.
  virtual int fd() const = 0;
  /// It is in the memory of another GPU than this process's.
  virtual bool remote() const = 0;
  /// DeviceArenaShape::several_gpus.
  virtual bool several_gpus() const = 0;

  /// All of one array of a shard, 0: its values, 1 and up: its slot variables. Set-up and shadow:
  /// waits until steps and copy are done. Others may change what is read: each float is whole.
  /// REQUIRES of Write(): not remote().
  /// Errors: kDeadlineExceeded while a step is under way (nothing is lost); the device's.
  virtual Status Write(int shard, int array, const float* from) = 0;
  virtual Status Read(int shard, int array, float* to, Deadline deadline) = 0;
  /// A gradient of this process: what a step has left here, or in place of a step.
  virtual Status WriteGradient(int shard, int slot, const float* from) = 0;
  virtual Status ReadGradient(int shard, int slot, float* to, Deadline deadline) = 0;

  /// One launch of one push.
  struct Push : BlockSweep {
    int shard = 0;
  };
  /// After OK what was not left is in the values, for every process.
  /// Errors: kUnavailable when the GPU does not answer until `deadline`; the device's.
  virtual Result<BlocksSwept> Apply(const Push& push, Deadline deadline) = 0;

  // For an engine of the same accelerator: device memory; of a remote() arena the values are for
  // copies at the beginning of a step alone.
  virtual float* values(int shard) const = 0;
  virtual float* gradient(int shard, int slot) const = 0;
  virtual int gradient_slots() const = 0;
};

}  // namespace passel

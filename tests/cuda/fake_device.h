// fake_device.h - a Device without a GPU, run by an adversary.
//
// Launched plans run one after another, and the operations of one in any order that its edges
// allow, drawn anew each time: kernels by the emulator, copies in torn pieces between other
// operations, everything as late as the host's waiting lets it. What a plan writes before anybody
// reads it is poisoned when the plan begins. What the host does wrong is written down
// (violations()): memory released while something names it, pageable memory in a plan, an
// executable destroyed under way. Memory of another FakeDevice may be touched by kernels at system
// scope alone.
//
// Life       It frees what was not given back to it, executables too.
// Threads    As Device; kOnAThread runs plans on a thread of its own.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "cuda/device.h"
#include "cuda/probe.h"

namespace passel::cuda {

struct FakeDeviceOptions {
  std::uint64_t seed = 0;
  /// false: operations in the order of their numbers, whole copies, no poison, quick emulation.
  bool adversarial = true;
  enum class Progress : std::uint8_t {
    kLazily,     ///< a few operations whenever the host asks for health; the same for a seed
    kOnAThread,  ///< at once, beside the host
  };
  Progress progress = Progress::kLazily;
  std::string uuid = "GPU-fa4e0000-0000-0000-0000-000000000000";
  std::uint64_t memory_limit = std::uint64_t{1} << 34;  ///< bytes of Allocate() and CreateShared()
  bool refuse_registration = false;
  bool refuse_sharing = false;
  bool mps = false;         ///< AcceleratorInfo::mps
  bool no_library = false;  ///< for large products
  std::uint64_t taken = 0;  ///< bytes of the memory that others have: AcceleratorInfo::free_bytes
  /// UUIDs of the devices that the process sees, its own too; empty: whichever there are.
  std::vector<std::string> visible;
  PeerFacts peers{true, true, true};  ///< of this device in the memory of each other

  /// Fails at operation `second` of launch `first`, both from 0.
  std::optional<std::pair<std::uint64_t, int>> fail_at;
  /// This launch ends the process by a signal: a driver that crashes.
  std::optional<std::uint64_t> crash_at;
  /// Operations of this name are not done: a GPU that computes something else.
  std::string left_out;
  /// Does nothing any more from this launch on: a GPU that hangs.
  std::optional<std::uint64_t> hang_at;
  /// Edges (from, to) of every plan that are forgotten: a plan that is wrong.
  std::set<std::pair<int, int>> forgotten_edges;
};

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(const FakeDeviceOptions& options);
  ~FakeDevice() override;

  const AcceleratorInfo& info() const override { return info_; }
  Result<Memory> Allocate(std::size_t bytes) override;
  Result<Memory> AllocatePinned(std::size_t bytes) override;
  Result<Memory> Register(void* begin, std::size_t bytes) override;
  /// A memfd: processes with a FakeDevice each really share it.
  Result<Memory> CreateShared(std::size_t bytes, FileDescriptor* fd) override;
  Result<Memory> ImportShared(int fd, std::size_t bytes, const std::string& home) override;
  Status CopyIn(void* to, const void* from_host, std::size_t bytes) override;
  Status CopyOut(void* to_host, const void* from, std::size_t bytes) override;
  Result<Library> HasLibrary() override;
  Result<std::unique_ptr<Executable>> Prepare(const Plan& plan, How how) override;
  Status Launch(Executable& executable) override;
  Status Health() override;
  /// Where the device hangs: at once, not at the deadline.
  Status Synchronize(Deadline deadline) override;

  /// What the host did wrong so far, a sentence each.
  std::vector<std::string> violations() const;
  /// Nothing is under way, or nothing can go on.
  bool idle() const;
  /// Kinds of memory, and registrations, that were not given back.
  std::size_t memories_alive() const;
  /// Kernels at that scope in all plans that were made ready.
  std::size_t kernels_at(Scope scope) const;

 protected:
  void Release(Deleter::Kind kind, void* memory) override;

 private:
  class FakeExecutable;
  struct Region {
    std::size_t size = 0;
    Deleter::Kind kind = Deleter::Kind::kDevice;
    std::size_t counted = 0;  // bytes of the limit
    bool foreign = false;     // of another device
    int owners = 1;           // of a registration
  };
  // One launch of a plan.
  struct Launched {
    FakeExecutable* executable = nullptr;
    std::uint64_t number = 0;
    bool begun = false;
    std::vector<std::size_t> copied;  // [node] bytes
    std::vector<bool> done;           // [node]
    std::size_t left = 0;             // nodes
    int laggard = -1;                 // this node comes as late as it may; -1: none
  };

  Result<Memory> NewMemory(std::size_t bytes, Deleter::Kind kind);
  Result<Memory> MapShared(int fd, std::size_t bytes, bool foreign);
  Status CheckHome(int fd, const std::string& home) const;
  // With the mutex held:
  Status CheckLimit(std::size_t bytes) const;
  const Region* Find(const void* begin, std::size_t size) const;
  Status CheckNode(const Node& node) const;
  Status CheckProduct(const Node& node, const LargeGemm& gemm) const;
  Status CheckForeign(const Node& node) const;
  static Status CheckWorkspace(const Plan& plan);
  // REQUIRES: the labels have memory of their own.
  bool IndicesInRange(const GatherKernel& gather) const;
  void Violation(std::string sentence);
  bool Hangs() const;
  int PickReady(const Launched& run);
  /// Runs one operation, or a piece of one, of the oldest launch; false if there is none to run.
  bool RunPiece(std::unique_lock<std::mutex>& lock);
  void Begin(Launched& run);
  void Serve();

  const FakeDeviceOptions options_;
  AcceleratorInfo info_;

  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  Random random_;
  std::map<std::uintptr_t, Region> regions_;
  std::map<std::uintptr_t, Region> registered_;
  std::set<FakeExecutable*> executables_;
  std::deque<Launched> queue_;
  std::uint64_t launches_ = 0;
  std::uint64_t bytes_ = 0;
  std::size_t kernels_at_[2] = {};  // [Scope]
  Status error_;
  std::vector<std::string> violations_;
  bool quit_ = false;
  std::thread thread_;
};

}  // namespace passel::cuda

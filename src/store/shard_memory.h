// shard_memory.h - the words through which the tasks of one shard work together.
//
// Everything here lives in memory that a carrier lends (an arena, or the heap of one process), at a
// different address in every task: no pointers, no virtual functions, trivially copyable but for
// the atomics. Any change of these bytes must raise shm::kLayoutVersion.
//
// Who writes what
//   ShardState    everyone, by atomic read-modify-write
//   ModeState     everyone, by compare-and-swap (store/mode_change.h)
//   TaskSlot      `state`: everyone, by compare-and-swap; `counted_round`: everyone, only raised;
//                 `held`: its worker, and others once its life has ended; the rest: its worker
//                 alone
//   RatesState    the chief alone
//   BatchState    everyone, by compare-and-swap (store/shared_batches.h)
//   BlockState    whoever holds the claim; `claim` itself by compare-and-swap, `overlaps` whoever
//                 goes ahead without it

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/event_word.h"
#include "base/histogram.h"
#include "base/process_identity.h"
#include "optim/optimizer.h"
#include "store/batch_state.h"
#include "store/mode.h"
#include "store/validation_words.h"
#include "store/variable_table.h"

namespace passel {

inline constexpr int kMaxWorkers = 256;
inline constexpr int kMaskWords = kMaxWorkers / 64;
inline constexpr int kMaxGradientSlots = 3;  ///< per worker
inline constexpr std::size_t kMaxBlocks = (std::size_t{1} << 24) - 2;

/// The members of one round, bit k = worker k.
using WorkerMask = std::array<std::uint64_t, kMaskWords>;

enum class Phase : std::uint8_t {
  kExpected = 0,  ///< never joined; rounds wait for it
  kJoining,       ///< writes its identity
  kRunning,
  kDone,     ///< finished and left
  kDead,     ///< its process is gone
  kEvicted,  ///< too slow for a round; fenced off until it joins again
  kLeft,     ///< told to go before it had finished; it may come back
  kSpare,    ///< a place that nobody was asked to take yet; rounds do not wait for it
};
inline constexpr Phase kLastPhase = Phase::kSpare;

/// Rounds wait for these: they may still give a gradient.
constexpr bool MayCome(Phase phase) { return phase <= Phase::kRunning; }

/// A worker's life: `epoch` counts its joins from 1, so a task that was replaced can never pass for
/// its successor.
struct TaskState {
  std::uint32_t epoch = 0;
  Phase phase = Phase::kExpected;

  std::uint64_t Pack() const {
    return std::uint64_t{epoch} << 8 | static_cast<std::uint8_t>(phase);
  }
  static TaskState Unpack(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 8), static_cast<Phase>(word & 0xff)};
  }
  bool operator==(const TaskState&) const = default;
};

/// How far one life of a worker has come: the round its gradient is ready for, the mode it may go
/// on in, the steps that it has completed (ssp). The word is only ever raised, and a later life is
/// the larger number: a former life that wakes up late neither passes for its successor nor takes
/// back what that has said.
struct Arrival {
  std::uint32_t epoch = 0;  // 24 bits
  std::uint64_t at = 0;     // 40 bits

  std::uint64_t Pack() const {
    return std::uint64_t{epoch & 0xffffff} << 40 | (at & 0xff'ffff'ffff);
  }
  static Arrival Unpack(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 40), word & 0xff'ffff'ffff};
  }
  bool IsOf(std::uint32_t life) const { return epoch == (life & 0xffffff); }
  /// True if `word` says so for this life, and this place or a later one.
  static bool Says(std::uint64_t word, std::uint32_t epoch, std::uint64_t at) {
    const Arrival said = Unpack(word);
    return said.IsOf(epoch) && said.at >= at;
  }
};

/// What a worker counts; it is the only writer, so relaxed loads and stores suffice. Survives the
/// worker's death and its next life.
struct WorkerCounters {
  std::atomic<std::uint64_t> local_steps;   ///< batches whose gradients were pushed
  std::atomic<std::uint64_t> pushes_begun;  ///< > pushes_ended after a death: one half applied
  std::atomic<std::uint64_t> pushes_ended;
  /// Begun and not ended as it should be: deaths in between, and updates that left something out.
  std::atomic<std::uint64_t> half_applied;
  std::atomic<std::uint64_t> dropped;         ///< gradients that came too late for their round
  std::atomic<std::uint64_t> max_clock_lead;  ///< ssp: steps ahead of the slowest, at a start
  std::atomic<std::uint64_t> skipped;         ///< gradients that were not finite
  std::atomic<std::uint64_t> fused_updates;   ///< pushes whose update their step made itself
  /// Another task held the claim: entered all the same, or left out (NeedsWholeSlots()).
  std::atomic<std::uint64_t> overlapped_blocks;
  std::atomic<std::uint64_t> busy_blocks;  ///< claimed by another task at the first try of a push
  std::atomic<std::uint64_t> taken_over_blocks;  ///< claims taken from dead or evicted tasks
  std::atomic<std::uint64_t> pull_ns, compute_ns, push_ns, wait_ns;
  std::atomic<std::int64_t> first_step_ns, last_step_ns;   ///< MonotonicNs(); 0: none yet
  std::atomic<std::uint64_t> cursor_epochs, cursor_index;  ///< of its batch sampler
  std::atomic<double> loss;                                ///< of its last batch, per example
  std::atomic<double> accuracy;                            ///< of its last batch, 0..1
  /// 1 + the global step at which its loss or gradient was not finite; 0: the last one was finite.
  std::atomic<std::int64_t> not_finite_at;
  std::atomic<std::uint64_t>
      device;  ///< low byte: 0 unknown yet, 1 CPU, 2 GPU. Above: job_status.h
  std::atomic<double> final_accuracy;  ///< on the test images at its own end; negative: none yet
  ValidationWords validation;          ///< this worker's best
  Histogram staleness;                 ///< updates
  Histogram push_latency_ns;
};

/// Of each worker.
inline constexpr std::size_t kMaxMetrics = 32;
inline constexpr std::size_t kMaxMetricName = 63;  ///< bytes

/// Metrics of a worker's own program (store/metrics.h); it is the only writer.
struct MetricSlots {
  static constexpr std::size_t kNameWords = (kMaxMetricName + 1) / 8;
  struct Slot {
    std::atomic<std::uint64_t> name[kNameWords];  // bytes, 0 behind them; before `count`
    std::atomic<double> value;
  };
  std::atomic<std::uint32_t> count;  // places that are taken, in order
  Slot slots[kMaxMetrics];
};

/// Floats that a round saves before it changes them: a quarter of a block, but few enough that the
/// copy, the values and the gradients stay in a core's first cache. A multiple of 16.
inline constexpr std::size_t kMaxPieceFloats = 512;
constexpr std::size_t PieceFloats(std::size_t block_floats) {
  const std::size_t quarter = (block_floats / 4 + 15) / 16 * 16;
  return quarter < kMaxPieceFloats ? quarter : kMaxPieceFloats;
}
inline constexpr std::size_t kMaxPieces = (std::size_t{1} << 28) - 1;

/// Where a worker is within a block that it applies in a round. All pieces of the block before
/// this one are applied, all behind it are not; this one is as it was (not `saved`), or may be half
/// applied and its old contents are in the worker's undo buffer (`saved`).
struct UndoTag {
  std::uint64_t round = 0;  // of which 35 bits are kept: a tag is only ever held against the round
                            // that is being applied
  std::size_t piece = 0;    // of the shard: block * PiecesPerBlock() + piece of the block
  bool saved = false;

  static constexpr std::uint64_t kRoundMask = (std::uint64_t{1} << 35) - 1;
  constexpr std::uint64_t Pack() const {
    return (round & kRoundMask) << 29 | static_cast<std::uint64_t>(piece + 1) << 1 |
           static_cast<std::uint64_t>(saved);
  }
  /// REQUIRES: word != 0.
  static constexpr UndoTag Unpack(std::uint64_t word) {
    return {word >> 29, static_cast<std::size_t>(word >> 1 & ((1u << 28) - 1)) - 1,
            (word & 1) != 0};
  }
  constexpr bool IsOf(std::uint64_t of_round) const { return round == (of_round & kRoundMask); }
};

/// How others end the life of a worker that does not answer.
enum class Eviction : std::uint8_t {
  kFence,  ///< it finds out when it goes on. For threads, and who stands for somebody elsewhere
  kKill,   ///< its process is killed, by whoever may; where nobody may it is fenced off too
};

/// The last update that a worker asked for over a wire, and what came of it: so that a request that
/// is repeated is answered, and not applied again. Written by its proxy alone.
struct RequestRecord {
  std::atomic<std::uint64_t> session;  // random: which client asks
  std::atomic<std::uint64_t> begun;    // number of the request, counted from 1
  // The same once its outcome is here (release). Less than `begun` after a death: half applied.
  std::atomic<std::uint64_t> ended;
  std::atomic<std::uint64_t> version;     // of the shard, before the update
  std::atomic<std::int64_t> global_step;  // after it; 0: it was not counted here
};

/// One worker as the others see it.
struct TaskSlot {
  // (lead) TaskState. On the other shards it says who came and left, for their ps alone.
  alignas(128) std::atomic<std::uint64_t> state;
  // [epoch & 1], valid in every phase but kExpected, kJoining. A life that was given up while it
  // joined and goes on late writes where nobody looks.
  ProcessIdentity identity[2];
  std::atomic<std::uint32_t> killable;     // the epoch that said Eviction::kKill; only raised
  std::atomic<std::uint32_t> evicted;      // the epoch whose death is an eviction; only raised
  std::atomic<std::int64_t> heartbeat_ns;  // (lead) MonotonicNs() of its last push or wait
  RequestRecord request;

  alignas(128) std::atomic<std::uint64_t> arrival;  // Arrival
  std::atomic<std::uint64_t> counted_round;  // last round that counted its gradient; by any member
  std::atomic<std::uint64_t> undo_tag;       // UndoTag: how far it is within a block; 0: nowhere
  // Arrival, with the number of the mode that may begin now that it has ended its last step.
  std::atomic<std::uint64_t> change_arrival;
  // The block that it updates at this moment without its claim, plus one (hogwild, ssp); 0: none.
  std::atomic<std::uint64_t> overlapping;
  // Members of the round this task proposes, and its set of rates (RatesState, 0: none); [round &
  // 1]. Stable while that round is applied.
  std::atomic<std::uint64_t> proposal[2][kMaskWords];
  std::atomic<std::uint32_t> proposed_rates[2];

  // Read by all others at every step of theirs in ssp: on a line pair of its own.
  alignas(128) std::atomic<std::uint64_t> clock;  // Arrival, at a step

  alignas(128) WorkerCounters counters;
  alignas(128) MetricSlots metrics;  // (lead)
  // (lead) Batches that it was given and is not done with: Arrival, with the number plus one; 0:
  // none. Others take them by compare-and-swap once it has ended (store/shared_batches.h).
  alignas(64) std::atomic<std::uint64_t> held[kHeldBatches];
};

/// One block of consecutive floats of the shard. A line pair of its own: neighbours do not collide.
struct alignas(128) BlockState {
  std::atomic<std::uint64_t> claim;  // 0: free, else Claim::Pack()
  std::atomic<std::uint64_t> round;  // last round applied to this block
  // Both are for who copies the block (store/shard_reader.h): it has changed if one of them has.
  std::atomic<std::uint64_t> updates;   // raised by the holder each time it lets go
  std::atomic<std::uint64_t> overlaps;  // updates without the claim that have ended
};

/// Who holds a block.
struct Claim {
  std::uint32_t epoch = 0;
  int worker = 0;
  std::uint64_t Pack() const {
    return std::uint64_t{epoch} << 16 | static_cast<std::uint64_t>(worker + 1);
  }
  static Claim Unpack(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 16), static_cast<int>(word & 0xffff) - 1};
  }
};

/// The last decision about a round. `generation` changes whenever a worker joins, so that a
/// decision prepared on the membership before that cannot be published.
struct Decision {
  std::uint64_t round = 0;       // 40 bits
  std::uint32_t generation = 0;  // 10 bits
  int worker = 0;                // 8 bits
  std::uint32_t ends = 0;  // 4 bits: EndOf() the mode whose last round this is; 0: not the last one
  std::uint32_t rates = 0;  // 2 bits: the set of RatesState that the next round is decided with
  std::uint64_t Pack() const {
    return round << 24 | static_cast<std::uint64_t>(generation & 0x3ff) << 14 |
           static_cast<std::uint64_t>(rates & 3) << 12 |
           static_cast<std::uint64_t>(ends & 0xf) << 8 | static_cast<std::uint64_t>(worker & 0xff);
  }
  static Decision Unpack(std::uint64_t word) {
    return {word >> 24, static_cast<std::uint32_t>(word >> 14 & 0x3ff),
            static_cast<int>(word & 0xff), static_cast<std::uint32_t>(word >> 8 & 0xf),
            static_cast<std::uint32_t>(word >> 12 & 3)};
  }
  bool SameRoundAs(Decision other) const { return round == other.round && worker == other.worker; }
  /// The end of the mode with this number, 1 to 15: tells it from the few before and after it.
  static std::uint32_t EndOf(std::uint32_t mode_number) { return 1 + mode_number % 15; }
};
static_assert(kMaxWorkers <= 0x100);

/// The mode that is in force, or one that is asked for.
struct ModeWord {
  static constexpr std::uint32_t kMaxNumber = (1U << 20) - 1;
  std::uint32_t number = 0;      // 20 bits: how many changes there were before it begins
  std::uint32_t generation = 0;  // 16 bits: changes whenever a worker joins, see Decision
  std::uint32_t scheduled = 0;   // 5 bits: entries of the schedule that are used up with it
  ModeSetting setting;

  std::uint64_t Pack() const {
    return static_cast<std::uint64_t>(number) << 44 |
           static_cast<std::uint64_t>(generation & 0xffff) << 28 |
           static_cast<std::uint64_t>(scheduled & 0x1f) << 23 |
           static_cast<std::uint64_t>(setting.mode) << 20 |
           static_cast<std::uint64_t>(setting.number);
  }
  /// `number` alone: what every step looks at.
  static std::uint32_t NumberOf(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 44);
  }
  static ModeWord Unpack(std::uint64_t word) {
    ModeWord m;
    m.number = NumberOf(word);
    m.generation = static_cast<std::uint32_t>(word >> 28 & 0xffff);
    m.scheduled = static_cast<std::uint32_t>(word >> 23 & 0x1f);
    m.setting = {static_cast<Mode>(word >> 20 & 7), static_cast<int>(word & 0xfffff)};
    return m;
  }
  /// True for the mode that follows `before` and is the same: all meet, and then they go on in it
  /// (store/meeting.h).
  bool IsMeetingIn(const ModeWord& before) const {
    return number == before.number + 1 && setting == before.setting &&
           scheduled == before.scheduled;
  }
};
static_assert(kMaxScheduledModes < 32 && kMaxReplicasToAggregate < 1 << 20 &&
              kMaxStalenessBound < 1 << 20 && static_cast<int>(kLastMode) < 8);

/// The same Decision or ModeWord in another generation: what was prepared on the one before fails.
template <typename Word>
std::uint64_t NextGeneration(std::uint64_t word) {
  Word next = Word::Unpack(word);
  ++next.generation;
  return next.Pack();
}

/// A number that all who take part in one change of mode agree on: the first one said counts.
struct AgreedNumber {
  std::uint32_t change = 0;  // 20 bits: ModeWord::number
  std::uint64_t value = 0;   // 44 bits
  std::uint64_t Pack() const {
    return static_cast<std::uint64_t>(change) << 44 | (value & 0xfff'ffff'ffff);
  }
  static AgreedNumber Unpack(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 44), word & 0xfff'ffff'ffff};
  }
};

/// What a mode starts from, agreed on by all who prepare it.
struct ModeStart {
  std::atomic<std::uint64_t> since;   // AgreedNumber: the global step at which it began
  std::atomic<std::uint64_t> clock;   // AgreedNumber: no worker's clock was above that
  std::atomic<std::uint64_t> record;  // AgreedNumber: of its setting, counted from 0
};

/// One setting that the job was or is in: meetings are none.
struct ModeRecord {
  std::atomic<std::uint64_t> setting;  // ModeWord with which it began, only raised
  std::atomic<std::uint64_t> since;    // AgreedNumber: the global step at which it began
};

/// (lead) The mode, the wish for another, and the last `kRecords` settings. Read at every step,
/// written when the mode changes or somebody joins.
struct ModeState {
  static constexpr std::uint32_t kRecords = 16;
  alignas(128) std::atomic<std::uint64_t> current;  // ModeWord
  std::atomic<std::uint64_t> wish;  // ModeWord; counts while its number is one above current's
  // AgreedNumber: the change that is held back until that millisecond of MonotonicNs(); 0: it is
  // not any more (store/meeting.h).
  std::atomic<std::uint64_t> hold;
  ModeStart starts[2];           // [ModeWord::number & 1]: of the mode in force and the next one
  ModeRecord records[kRecords];  // [ModeStart::record % kRecords]

  ModeStart& StartOf(std::uint32_t number) { return starts[number & 1]; }
};

/// (lead) How many workers somebody wants the job to have (store/scale.h).
struct ScaleWord {
  std::uint32_t number = 0;   // of the wish, counted from 1; 0: there was none
  std::uint32_t workers = 0;  // worker/0 up to worker/(workers - 1)
  std::uint64_t Pack() const { return static_cast<std::uint64_t>(number) << 32 | workers; }
  static ScaleWord Unpack(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
  }
};

/// (lead) Where the values of a job are whose plan keeps them in the memory of a GPU
/// (StorePlan::on_device): the arena there, and how old its shadow is, the values of all shards.
/// The shadow is written by whoever holds the claim of the lead's block 0.
struct DeviceState {
  static constexpr int kNameWords = 8;
  alignas(128) std::atomic<std::uint64_t> arena;  // its number; 0: the chief has not made it yet
  std::atomic<std::uint64_t> device[kNameWords];  // UUID of its GPU, 0 behind it; before `arena`
  std::atomic<std::int64_t> shadow_ns;            // MonotonicNs() when it was read; 0: never
  std::atomic<std::int64_t> shadow_step;          // global step before it was read
  std::atomic<std::int64_t> shadow_last_step;     // and after
  // A copy that has all updates up to this global step is wanted: only raised, by anyone.
  std::atomic<std::int64_t> shadow_wanted;
};

/// The rates that the chief has set, for each group (store/rates.h). The chief alone writes, into a
/// set that no update takes.
struct RatesState {
  static constexpr std::uint32_t kSets = 3;  // in force, of the round that is applied, the next
  struct Words {
    std::atomic<double> learning_rate, weight_decay;
  };
  // In force in the modes without rounds, 1 to kSets; 0: none was set, and OptimizerConfig says
  // them. Rounds: Decision::rates of the lead.
  alignas(128) std::atomic<std::uint32_t> now;
  Words sets[kSets][kMaxGroups];  // [number - 1]
};

/// The state of one shard as a whole. In a job of several shards the words marked (lead) count in
/// shard 0 only.
struct ShardState {
  alignas(128) std::atomic<std::uint64_t> version;        // updates applied
  alignas(128) std::atomic<std::int64_t> optimizer_step;  // taken once per update, by every worker
  alignas(128) std::atomic<std::int64_t> global_step;     // (lead)
  // (lead) Decision: the round decided last, and whose proposal names its members.
  alignas(128) std::atomic<std::uint64_t> decision;
  alignas(128) std::atomic<std::uint64_t> completed_round;
  alignas(128) std::atomic<std::uint32_t> initialized;  // 1: the chief has written the values
  std::atomic<std::uint32_t> stop;                      // (lead) 1: everyone leaves
  // (lead) What the chief's first life has said of the job, for people who ask (relaxed).
  std::atomic<std::int64_t> started_ns;   // MonotonicNs() when it had the store; 0: not yet
  std::atomic<std::int64_t> target_step;  // training ends there; 0: not said, or by another rule
  // (lead) The steps that were made before this job, of the checkpoint that it began with: global,
  // and of all workers together (relaxed).
  std::atomic<std::int64_t> restored_step, restored_local_steps;
  // Random, of the Initialize() that wrote the values: the same on all shards. Before
  // `initialized`.
  std::atomic<std::uint64_t> cohort;
  // (lead) ScaleWord: the last wish, and the last one that the supervisor is done with.
  std::atomic<std::uint64_t> scale_wish, scale_done;
  EventWord event;  // any change of the words above that somebody may wait for
  ModeState mode;
  DeviceState device;
  RatesState rates;
  BatchState batches;
  alignas(128) ValidationWords evaluated;  // (lead) of all evaluators; ps/0 writes it
};

/// What happened to the members, the last `kRecords` times: for people who ask afterwards.
struct EventRecord {
  std::atomic<std::uint64_t> number;  // counted from 1, written last; 0: empty
  std::atomic<std::int64_t> time_ns;  // MonotonicNs()
  std::atomic<std::uint64_t> state;   // TaskState after the event
  std::atomic<std::int32_t> worker;
  std::atomic<std::int32_t> pid;
  std::atomic<std::int64_t> global_step;
};
struct EventRing {
  static constexpr std::uint64_t kRecords = 128;
  alignas(128) std::atomic<std::uint64_t> next;
  EventRecord records[kRecords];
};

/// Where the parts of one shard are in this process. A carrier fills it in.
struct ShardMemory {
  ShardState* state = nullptr;
  TaskSlot* tasks = nullptr;     // [num_workers]
  BlockState* blocks = nullptr;  // [num_blocks]
  float* values = nullptr;       // [floats]
  float* slots[kMaxSlots] = {};  // each [floats]
  float* gradients = nullptr;    // worker-major: [num_workers][gradient_slots][floats]
  EventRing* events = nullptr;
  float* undo = nullptr;  // [num_workers][1 + num_slots][PieceFloats()]

  std::size_t floats = 0;  // padding included
  std::size_t block_floats = 0;
  std::size_t num_blocks = 0;
  int num_workers = 0;
  int spare_workers = 0;                     // of them, the last ones: kSpare at first
  int gradient_slots = 0;                    // per worker
  int num_slots = 0;                         // slot variables of the optimizer
  int num_groups = 1;                        // of all shards
  std::shared_ptr<const GroupSpans> groups;  // of these floats; null: there is one group

  std::size_t BlockBegin(std::size_t block) const { return block * block_floats; }
  std::size_t BlockSize(std::size_t block) const {
    const std::size_t left = floats - block * block_floats;
    return left < block_floats ? left : block_floats;
  }
  float* Gradient(int worker, int slot) const {
    return gradients +
           (static_cast<std::size_t>(worker) * static_cast<std::size_t>(gradient_slots) +
            static_cast<std::size_t>(slot)) *
               floats;
  }
  /// Rounds save a block in pieces of this many floats; the last of a block may be shorter.
  std::size_t PieceFloats() const { return passel::PieceFloats(block_floats); }
  std::size_t PiecesPerBlock() const { return (block_floats - 1) / PieceFloats() + 1; }
  float* Undo(int worker) const {
    return undo + static_cast<std::size_t>(worker) * static_cast<std::size_t>(1 + num_slots) *
                      PieceFloats();
  }
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<double>::is_always_lock_free);
static_assert(sizeof(TaskSlot) % 128 == 0 && sizeof(BlockState) == 128);

}  // namespace passel

// wire.h - what the messages between a worker and a ps say.
//
// A worker sends requests, its proxy at the ps sends answers. Numbers are fixed-width and
// little-endian; times are durations. What comes from the other side is checked here for its form,
// and where it is used against the plan; a message that does not pass is refused with one sentence.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/lead.h"
#include "store/parameter_store.h"
#include "store/shard.h"
#include "store/shard_memory.h"
#include "store/wait_options.h"

namespace passel::fabric {

inline constexpr std::uint32_t kMagic = 0x6c737370;  // "pssl"
inline constexpr std::uint16_t kProtocolVersion = 5;

enum class Kind : std::uint8_t {
  kHello = 1,  ///< who asks; on the lead: joins
  kAsk,        ///< cohort and version, beside the state that every answer has
  kMembers,
  kMissing,
  kHolders,
  kStop,
  kSayAlive,
  kAwaitInitialized,
  kPull,
  kOpen,
  kRestore,
  kLeave,
  kEnterMode,
  kPrepareChange,
  kAwaitChange,
  kPublishChange,
  kUpdate,  ///< Apply(); with kCount also CountUpdate(), with kSlowest AwaitSlowest() if at once
  kCount,   ///< CountUpdate(); with kSlowest AwaitSlowest() if at once
  kAwaitSlowest,
  kStage,
  kRound,  ///< those of kStageIt, kArrive, kAwait, kApply that are asked for, in this order
  kApplyRound,
  kFinishRound,
  kAwaitCompletion,
  kDecided,
  kDecideNoMore,
  kSetRates,
};
inline constexpr Kind kLastKind = Kind::kSetRates;

/// What requests of one kind are, and what they carry.
struct KindInfo {
  const char* name;
  bool quick;  ///< answered at any time, also while a step is under way; else it is a step
  bool lead;   ///< only the ps of shard 0 has an answer
  std::uint32_t parts;
};
enum Part : std::uint32_t {
  kHelloPart = 1,
  kNumberPart = 2,
  kGrantPart = 4,
  kModePart = 8,
  kStartPart = 16,
  kProgressPart = 32,
  kSlotPart = 64,
  kRatesPart = 128,
};
const KindInfo& InfoOf(Kind kind);

/// What requests may ask for.
enum Flag : std::uint16_t {
  kValues = 1,  ///< the values, after all else
  kCount = 2,
  kSlowest = 4,
  kStageIt = 8,
  kArrive = 16,
  kAwait = 32,
  kApply = 64,
  kReport = 128,   ///< `report` is there
  kStopToo = 256,  ///< before all else, as Kind::kStop
};

struct Hello {
  std::uint64_t plan_hash = 0;
  std::int32_t worker = 0;
  std::int32_t shard = 0;
  std::int32_t pid = 0;          ///< of the worker, for people
  std::uint32_t epoch = 0;       ///< the life that asks; 0 on the lead: a new one
  std::uint64_t first_step = 0;  ///< steps with smaller ids are over
  std::uint64_t mode = 0;        ///< ModeWord that it goes by; kNoMode: none yet
  std::int64_t stall_limit_ns = 0;
  std::int64_t start_wait_ns = 0;
  OnStall on_stall = OnStall::kEvict;
  std::int32_t chief = 0;  ///< WorkerNames
  std::string chief_name;

  static constexpr std::uint64_t kNoMode = ~std::uint64_t{0};
};

/// What a worker itself counts (WorkerCounters): the scalars, and the buckets of its two histograms
/// that hold something, those of the second behind those of the first.
struct CounterReport {
  static constexpr std::size_t kScalars = 22;
  struct Bucket {
    std::uint16_t index = 0;
    std::uint64_t count = 0;
  };
  std::array<std::uint64_t, kScalars> scalars{};
  std::vector<Bucket> buckets;
};

struct Request {
  Kind kind = Kind::kAsk;
  std::uint64_t session = 0;      ///< random, not 0
  std::uint64_t id = 0;           ///< counted from 1; kHello: 0
  std::int64_t remaining_ns = 0;  ///< until its deadline
  std::uint16_t flags = 0;
  /// A repetition of a request that has a bulk, without it: who has not read that asks for it. So
  /// nobody sends values to one that is sending a gradient.
  bool again = false;
  Hello hello;
  std::uint64_t number = 0;  ///< a round or a step; kLeave: Phase; kMissing: with `slot` WaitingOn
  std::int32_t slot = 0;
  RoundGrant grant;
  std::uint64_t mode = 0;  ///< ModeWord
  ShardStart start;
  JobProgress progress;
  RatesStep rates;
  CounterReport report;
};

/// What a worker asks at each step, as of one moment.
struct State {
  std::uint64_t serial = 0;  ///< later answers of one life have larger ones
  std::uint32_t epoch = 0;   ///< whose
  Status alive;              ///< of Lead::CheckAlive()
  bool stopped = false;
  bool initialized = false;
  bool change_due = false;
  std::int64_t global_step = 0;
  std::uint64_t completed_round = 0;
  std::uint64_t mode = 0;  ///< ModeWord
  std::uint64_t clock_lead = 0;
  /// pushes_begun, pushes_ended, half_applied, overlapped_blocks, busy_blocks, taken_over_blocks.
  std::array<std::uint64_t, 6> engine{};
};

struct Answer {
  Kind to = Kind::kAsk;
  std::uint64_t session = 0;
  std::uint64_t id = 0;
  /// No answer yet: the request is in hand, a round's gradient has arrived.
  bool working = false;
  bool unread = false;  ///< No answer: the bulk of this request has not been read
  Status status;
  State state;
  Version version = 0;  ///< of the values that come along
  /// Version before an update; global step; step of a change; set of rates; what looks for the
  /// slowest: 1 if this worker would be near enough after one step more.
  std::uint64_t number = 0;
  /// There is a number; near enough; decided; complete. kHello: this life has left.
  bool yes = false;
  bool values = false;    ///< they come along
  std::int64_t step = 0;  ///< global step after an update
  std::optional<RoundGrant> grant;
  std::vector<Member> members;
  std::optional<CounterReport> report;  ///< kHello: what is there of this worker's former lives
};

std::vector<std::uint8_t> Encode(const Request& request);
std::vector<std::uint8_t> Encode(const Answer& answer);
/// Errors: kInvalidArgument.
Result<Request> DecodeRequest(std::span<const std::uint8_t> header);
Result<Answer> DecodeAnswer(std::span<const std::uint8_t> header);

}  // namespace passel::fabric

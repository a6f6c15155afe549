#include "fabric/wire.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <type_traits>

namespace passel::fabric {
namespace {

constexpr std::uint8_t kRequestMark = 'q';
constexpr std::uint8_t kAnswerMark = 'a';
constexpr std::size_t kMaxTextBytes = 1000;
constexpr std::size_t kMaxNameBytes = 63;

constexpr KindInfo kKinds[] = {
    {"hello", true, false, kHelloPart},
    {"ask", true, false, 0},
    {"members", true, true, 0},
    {"missing", true, true, kNumberPart | kSlotPart},
    {"holders", true, false, kNumberPart},
    {"stop", true, false, 0},
    {"say alive", true, true, 0},
    {"await initialized", false, false, 0},
    {"pull", false, false, 0},
    {"open", false, false, kStartPart},
    {"restore", false, true, kProgressPart},
    {"leave", false, false, kNumberPart},
    {"enter mode", false, false, kModePart},
    {"prepare change", false, false, kNumberPart},
    {"await change", false, true, 0},
    {"publish change", false, true, 0},
    {"update", false, false, kSlotPart},
    {"count", false, true, 0},
    {"await slowest", false, true, 0},
    {"stage", false, false, 0},
    {"round", false, true, kNumberPart},
    {"apply round", false, false, kGrantPart},
    {"finish round", false, true, kGrantPart},
    {"await completion", false, true, kNumberPart},
    {"decided", false, true, kNumberPart},
    {"decide no more", false, true, 0},
    {"set rates", true, false, kRatesPart},
};
static_assert(std::size(kKinds) == static_cast<std::size_t>(kLastKind));

// Writer and Reader have the same calls, so that one function describes a message both ways.
class Writer {
 public:
  static constexpr bool kReads = false;
  template <typename T>
  void Number(const T& value) {
    const auto bits = static_cast<std::uint64_t>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<std::uint8_t>(bits >> (8 * i)));
    }
  }
  void Check(bool, const char*) {}
  void Text(const std::string& text, std::size_t most) {
    const auto size = static_cast<std::uint16_t>(std::min(text.size(), most));
    Number(size);
    bytes_.insert(bytes_.end(), text.begin(), text.begin() + size);
  }
  std::vector<std::uint8_t> Take() { return std::move(bytes_); }

 private:
  std::vector<std::uint8_t> bytes_;
};

class Reader {
 public:
  static constexpr bool kReads = true;
  explicit Reader(std::span<const std::uint8_t> bytes) : left_(bytes) {}

  template <typename T>
  void Number(T& value) {
    value = T{};
    if (!Has(sizeof(T))) return;
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) bits |= std::uint64_t{left_[i]} << (8 * i);
    left_ = left_.subspan(sizeof(T));
    if constexpr (std::is_same_v<T, bool>) {
      Check(bits <= 1, "a flag that is neither 0 nor 1");
      value = bits == 1;
    } else {
      value = static_cast<T>(bits);
    }
  }
  void Check(bool good, const char* what) {
    if (!good && wrong_ == nullptr) wrong_ = what;
  }
  void Text(std::string& text, std::size_t most) {
    std::uint16_t size = 0;
    Number(size);
    Check(size <= most, "a text that is too long");
    if (!good() || !Has(size)) return;
    text.assign(left_.begin(), left_.begin() + size);
    left_ = left_.subspan(size);
  }
  bool good() const { return wrong_ == nullptr; }
  /// What is wrong with the whole message; null: nothing.
  const char* End() {
    Check(left_.empty(), "more than it should");
    return wrong_;
  }

 private:
  bool Has(std::size_t bytes) {
    Check(bytes <= left_.size(), "less than it should");
    return good();
  }
  std::span<const std::uint8_t> left_;
  const char* wrong_ = nullptr;
};

template <typename Ar, typename E>
void Enumerator(Ar& ar, E& value, E first, E last) {
  ar.Number(value);
  ar.Check(value >= first && value <= last, "a word that this build does not know");
  if constexpr (Ar::kReads) {
    if (!ar.good()) value = first;
  }
}

template <typename Ar, typename T, typename Each>
void List(Ar& ar, std::vector<T>& list, std::uint64_t most, Each&& each) {
  auto size = static_cast<std::uint32_t>(list.size());
  ar.Number(size);
  ar.Check(size <= most, "a list that is too long");
  if constexpr (Ar::kReads) {
    // Each element has some bytes: a false size ends with the message, long before memory does.
    for (std::uint32_t i = 0; i < size && ar.good(); ++i) each(list.emplace_back());
  } else {
    for (T& element : list) each(element);
  }
}

template <typename Ar, typename T, typename Fields>
void Optional(Ar& ar, std::optional<T>& value, Fields&& fields) {
  bool there = value.has_value();
  ar.Number(there);
  if (!there) return;
  if (Ar::kReads) value.emplace();
  fields(*value);
}

template <typename Ar>
void StatusField(Ar& ar, Status& status) {
  auto code = static_cast<std::uint8_t>(status.code());
  std::string text = status.message();
  Enumerator(ar, code, std::uint8_t{0}, static_cast<std::uint8_t>(Code::kDiverged));
  ar.Text(text, kMaxTextBytes);
  if constexpr (Ar::kReads) {
    status = code == 0 ? Status() : Status(static_cast<Code>(code), std::move(text));
  }
}

template <typename Ar>
void ModeField(Ar& ar, std::uint64_t& mode, bool may_be_none = false) {
  ar.Number(mode);
  if constexpr (Ar::kReads) {
    if (mode == Hello::kNoMode && may_be_none) return;
    const ModeWord word = ModeWord::Unpack(mode);
    const bool known = word.setting.mode <= kLastMode;
    ar.Check(known && word.setting.Validate().ok(), "a mode that this build does not know");
  }
}

template <typename Ar>
void RatesSetField(Ar& ar, std::uint32_t& set) {
  ar.Number(set);
  ar.Check(set <= RatesState::kSets, "a set of rates that does not exist");
}

template <typename Ar>
void RatesFields(Ar& ar, RatesStep& step) {
  const auto number = [&ar](double& value) {
    auto bits = std::bit_cast<std::uint64_t>(value);
    ar.Number(bits);
    value = std::bit_cast<double>(bits);
  };
  RatesSetField(ar, step.set);
  ar.Number(step.write);
  ar.Number(step.use);
  List(ar, step.rates, kMaxGroups, [&](GroupRates& rates) {
    number(rates.learning_rate);
    number(rates.weight_decay);
  });
}

template <typename Ar>
void GrantFields(Ar& ar, RoundGrant& grant) {
  ar.Number(grant.round);
  ar.Number(grant.count);
  RatesSetField(ar, grant.rates);
  int members = 0;
  for (std::uint64_t& word : grant.members) {
    ar.Number(word);
    members += std::popcount(word);
  }
  ar.Check(grant.count == members || (grant.count == 0 && members == 1),
           "a false count of members");
}

template <typename Ar>
void ReportFields(Ar& ar, CounterReport& report) {
  for (std::uint64_t& scalar : report.scalars) ar.Number(scalar);
  List(ar, report.buckets, 2 * Histogram::kBuckets, [&](CounterReport::Bucket& bucket) {
    ar.Number(bucket.index);
    ar.Number(bucket.count);
    ar.Check(bucket.index < 2 * Histogram::kBuckets, "a bucket that does not exist");
  });
}

template <typename Ar>
void HelloFields(Ar& ar, Hello& hello) {
  ar.Number(hello.plan_hash);
  ar.Number(hello.worker);
  ar.Number(hello.shard);
  ar.Number(hello.pid);
  ar.Number(hello.epoch);
  ar.Number(hello.first_step);
  ModeField(ar, hello.mode, /*may_be_none=*/true);
  ar.Number(hello.stall_limit_ns);
  ar.Number(hello.start_wait_ns);
  auto on_stall = static_cast<std::uint8_t>(hello.on_stall);
  Enumerator(ar, on_stall, std::uint8_t{0}, static_cast<std::uint8_t>(OnStall::kFail));
  hello.on_stall = static_cast<OnStall>(on_stall);
  ar.Number(hello.chief);
  ar.Text(hello.chief_name, kMaxNameBytes);
  ar.Check(hello.pid > 0, "no process");
  ar.Check(hello.stall_limit_ns >= 0 && hello.start_wait_ns >= 0, "a limit below 0");
}

template <typename Ar>
void ProgressFields(Ar& ar, JobProgress& progress) {
  ar.Number(progress.global_step);
  List(ar, progress.workers, kMaxWorkers, [&](JobProgress::Worker& worker) {
    ar.Number(worker.clock);
    ar.Number(worker.cursor_epochs);
    ar.Number(worker.cursor_index);
    ar.Number(worker.local_steps);
  });
  List(ar, progress.shards, kMaxShards, [&](JobProgress::Shard& shard) {
    ar.Number(shard.version);
    ar.Number(shard.optimizer_step);
  });
}

template <typename Ar>
void StartFields(Ar& ar, ShardStart& start) {
  ar.Number(start.cohort);
  ar.Number(start.version);
  ar.Number(start.optimizer_step);
  ar.Number(start.round);
  ar.Number(start.with_slots);
}

template <typename Ar>
void MemberFields(Ar& ar, Member& member) {
  auto worker = static_cast<std::int32_t>(member.worker);
  ar.Number(worker);
  member.worker = worker;
  auto phase = static_cast<std::uint8_t>(member.phase);
  Enumerator(ar, phase, std::uint8_t{0}, static_cast<std::uint8_t>(kLastPhase));
  member.phase = static_cast<Phase>(phase);
  ar.Number(member.epoch);
  ar.Number(member.pid);
  ar.Number(member.local_steps);
  ar.Number(member.heartbeat_age_ns);
  ar.Check(worker >= 0 && worker < kMaxWorkers, "a worker that cannot be");
}

template <typename Ar>
void StateFields(Ar& ar, State& state) {
  ar.Number(state.serial);
  ar.Number(state.epoch);
  StatusField(ar, state.alive);
  ar.Number(state.stopped);
  ar.Number(state.initialized);
  ar.Number(state.change_due);
  ar.Number(state.global_step);
  ar.Number(state.completed_round);
  ModeField(ar, state.mode);
  ar.Number(state.clock_lead);
  for (std::uint64_t& count : state.engine) ar.Number(count);
}

// What every message begins with.
template <typename Ar>
void Preamble(Ar& ar, std::uint8_t mark) {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kProtocolVersion;
  std::uint8_t kind_of_message = mark;
  ar.Number(magic);
  ar.Check(magic == kMagic, "no word of this protocol");
  ar.Number(version);
  ar.Check(version == kProtocolVersion, "another version of the protocol");
  ar.Number(kind_of_message);
  ar.Check(kind_of_message == mark, "a message of the other direction");
}

template <typename Ar>
void Fields(Ar& ar, Request& request) {
  Preamble(ar, kRequestMark);
  Enumerator(ar, request.kind, Kind::kHello, kLastKind);
  ar.Number(request.session);
  ar.Number(request.id);
  ar.Number(request.remaining_ns);
  ar.Number(request.flags);
  ar.Number(request.again);
  ar.Check(request.session != 0, "no session");
  ar.Check((request.id == 0) == (request.kind == Kind::kHello), "a false id");
  ar.Check(request.remaining_ns >= 0, "a deadline that has passed");
  const std::uint32_t parts = InfoOf(request.kind).parts;
  if (parts & kHelloPart) HelloFields(ar, request.hello);
  if (parts & kNumberPart) ar.Number(request.number);
  if (parts & kSlotPart) ar.Number(request.slot);
  if (parts & kGrantPart) GrantFields(ar, request.grant);
  if (parts & kModePart) ModeField(ar, request.mode);
  if (parts & kStartPart) StartFields(ar, request.start);
  if (parts & kProgressPart) ProgressFields(ar, request.progress);
  if (parts & kRatesPart) RatesFields(ar, request.rates);
  if (request.flags & kReport) ReportFields(ar, request.report);
}

template <typename Ar>
void Fields(Ar& ar, Answer& answer) {
  Preamble(ar, kAnswerMark);
  Enumerator(ar, answer.to, Kind::kHello, kLastKind);
  ar.Number(answer.session);
  ar.Number(answer.id);
  ar.Number(answer.working);
  ar.Number(answer.unread);
  StatusField(ar, answer.status);
  StateFields(ar, answer.state);
  ar.Number(answer.version);
  ar.Number(answer.number);
  ar.Number(answer.yes);
  ar.Number(answer.values);
  ar.Number(answer.step);
  Optional(ar, answer.grant, [&](RoundGrant& grant) { GrantFields(ar, grant); });
  List(ar, answer.members, kMaxWorkers, [&](Member& member) { MemberFields(ar, member); });
  Optional(ar, answer.report, [&](CounterReport& report) { ReportFields(ar, report); });
}

template <typename Message>
std::vector<std::uint8_t> EncodeMessage(const Message& message) {
  Writer writer;
  Fields(writer, const_cast<Message&>(message));  // only read
  return writer.Take();
}

template <typename Message>
Result<Message> DecodeMessage(std::span<const std::uint8_t> header, const char* name) {
  Reader reader(header);
  Message message;
  Fields(reader, message);
  if (const char* wrong = reader.End()) {
    return InvalidArgument(fmt::format("{} of {} bytes has {}", name, header.size(), wrong));
  }
  return message;
}

}  // namespace

const KindInfo& InfoOf(Kind kind) { return kKinds[static_cast<std::size_t>(kind) - 1]; }

std::vector<std::uint8_t> Encode(const Request& request) { return EncodeMessage(request); }
std::vector<std::uint8_t> Encode(const Answer& answer) { return EncodeMessage(answer); }

Result<Request> DecodeRequest(std::span<const std::uint8_t> header) {
  return DecodeMessage<Request>(header, "a request");
}

Result<Answer> DecodeAnswer(std::span<const std::uint8_t> header) {
  return DecodeMessage<Answer>(header, "an answer");
}

}  // namespace passel::fabric

#include "store/mode_change.h"

#include <fmt/core.h>

#include <algorithm>

#include "store/membership.h"

namespace passel {

ModeWord CurrentMode(const ShardMemory& lead) {
  return ModeWord::Unpack(lead.state->mode.current.load(std::memory_order_seq_cst));
}

std::optional<ModeWord> WishedMode(const ShardMemory& lead) {
  // The wish first: a wish that is fulfilled in between is not one above the current mode any more.
  const ModeWord wish = ModeWord::Unpack(lead.state->mode.wish.load(std::memory_order_seq_cst));
  const ModeWord current = CurrentMode(lead);
  if (wish.number != current.number + 1 || wish.IsMeetingIn(current)) return std::nullopt;
  return wish;
}

Status CheckNothingIsWished(const ShardMemory& lead, const ModeWord& current,
                            const ModeWord& wish) {
  if (lead.state->stop.load(std::memory_order_seq_cst) != 0) {
    return FailedPrecondition("the job is ending: its mode does not change any more");
  }
  if (wish.IsMeetingIn(current)) {
    return AlreadyExists(
        "the workers of the job meet at this moment, for a copy of the values: try again when they "
        "go on");
  }
  if (wish.number == current.number + 1) {
    return AlreadyExists(
        fmt::format("the job is changing to mode {} at this moment: try again when it has",
                    wish.setting.ToString()));
  }
  if (current.number >= ModeWord::kMaxNumber) {
    return ResourceExhausted(
        fmt::format("the mode of a job changes at most {} times, meetings of its workers included: "
                    "start it again",
                    ModeWord::kMaxNumber));
  }
  return {};
}

Result<std::uint32_t> WishForMode(const ShardMemory& lead, const ModeSetting& setting) {
  PASSEL_RETURN_IF_ERROR(setting.Validate());
  const ModeSetting wanted = setting.For(lead.num_workers);
  ModeState& mode = lead.state->mode;
  for (;;) {
    std::uint64_t seen = mode.wish.load(std::memory_order_seq_cst);
    const ModeWord wish = ModeWord::Unpack(seen);
    const ModeWord current = CurrentMode(lead);
    const Status free = CheckNothingIsWished(lead, current, wish);
    if (free.code() == Code::kAlreadyExists && wish.setting == wanted) return wish.number;
    PASSEL_RETURN_IF_ERROR(free);
    if (current.setting == wanted) return current.number;
    const ModeWord next{current.number + 1, 0, current.scheduled, wanted};
    if (mode.wish.compare_exchange_strong(seen, next.Pack(), std::memory_order_seq_cst)) {
      Notify(lead.state->event);  // ssp: who waits for slower ones need not any more
      return next.number;
    }
  }
}

void WishForScheduledMode(const ShardMemory& lead, const std::vector<ScheduledMode>& schedule,
                          std::uint64_t step) {
  ModeState& mode = lead.state->mode;
  std::uint64_t seen = mode.wish.load(std::memory_order_seq_cst);
  const ModeWord current = CurrentMode(lead);
  if (current.scheduled >= schedule.size()) return;
  const ScheduledMode& entry = schedule[current.scheduled];
  if (static_cast<std::uint64_t>(entry.step) > step) return;
  const ModeWord wish = ModeWord::Unpack(seen);
  // One after the other; but a meeting that nobody has left yet becomes this change.
  if (wish.number == current.number + 1 && !wish.IsMeetingIn(current)) return;
  if (current.number >= ModeWord::kMaxNumber) return;
  const ModeWord next{current.number + 1, 0, current.scheduled + 1, entry.setting};
  // If it fails, somebody else has asked.
  if (mode.wish.compare_exchange_strong(seen, next.Pack(), std::memory_order_seq_cst)) {
    Notify(lead.state->event);
  }
}

std::vector<Member> MissingAtChange(const ShardMemory& lead, std::uint32_t number) {
  std::vector<Member> missing = Membership(lead);
  std::erase_if(missing, [&](const Member& m) {
    const auto& arrival = lead.tasks[m.worker].change_arrival;
    return !MayCome(m.phase) || m.phase == Phase::kExpected ||
           Arrival::Says(arrival.load(std::memory_order_seq_cst), m.epoch, number);
  });
  return missing;
}

std::vector<PastMode> ModesSoFar(const ShardMemory& lead) {
  ModeState& mode = lead.state->mode;
  const ModeWord current = CurrentMode(lead);
  const auto last =
      AgreedNumber::Unpack(mode.StartOf(current.number).record.load(std::memory_order_acquire));
  std::vector<PastMode> modes;
  if (last.change != current.number) return modes;  // changed while we read
  const std::uint64_t count = std::min<std::uint64_t>(last.value + 1, ModeState::kRecords);
  for (std::uint64_t place = last.value + 1 - count; place <= last.value; ++place) {
    const ModeRecord& record = mode.records[place % ModeState::kRecords];
    const auto since = AgreedNumber::Unpack(record.since.load(std::memory_order_acquire));
    const ModeWord setting = ModeWord::Unpack(record.setting.load(std::memory_order_acquire));
    // Overwritten while we read.
    if (since.change != setting.number || setting.number > current.number) continue;
    modes.push_back({setting.number, setting.setting, static_cast<std::int64_t>(since.value)});
  }
  return modes;
}

}  // namespace passel

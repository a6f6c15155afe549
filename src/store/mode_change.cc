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
  if (wish.number != CurrentMode(lead).number + 1) return std::nullopt;
  return wish;
}

Result<std::uint32_t> WishForMode(const ShardMemory& lead, const ModeSetting& setting) {
  PASSEL_RETURN_IF_ERROR(setting.Validate());
  const ModeSetting wanted = setting.For(lead.num_workers);
  ModeState& mode = lead.state->mode;
  for (;;) {
    if (lead.state->stop.load(std::memory_order_seq_cst) != 0) {
      return FailedPrecondition("the job is ending: its mode does not change any more");
    }
    std::uint64_t seen = mode.wish.load(std::memory_order_seq_cst);
    const ModeWord wish = ModeWord::Unpack(seen);
    const ModeWord current = CurrentMode(lead);
    if (wish.number == current.number + 1) {
      if (wish.setting == wanted) return wish.number;
      return AlreadyExists(
          fmt::format("the job is changing to mode {} at this moment: try again when it has",
                      wish.setting.ToString()));
    }
    if (current.setting == wanted) return current.number;
    if (current.number >= ModeWord::kMaxNumber) {
      return ResourceExhausted(
          fmt::format("the mode of a job changes at most {} times: start it "
                      "again with --mode {}",
                      ModeWord::kMaxNumber, wanted.ToString()));
    }
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
  if (ModeWord::Unpack(seen).number == current.number + 1) return;  // one after the other
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
  std::vector<PastMode> modes;
  const ModeWord current = CurrentMode(lead);
  const std::uint32_t count = std::min(current.number + 1, ModeState::kRecords);
  for (std::uint32_t number = current.number + 1 - count; number <= current.number; ++number) {
    const ModeRecord& record = lead.state->mode.records[number % ModeState::kRecords];
    const auto since = AgreedNumber::Unpack(record.since.load(std::memory_order_acquire));
    const ModeWord setting = ModeWord::Unpack(record.setting.load(std::memory_order_acquire));
    if (since.change != number || setting.number != number) continue;  // changed while we read
    modes.push_back({number, setting.setting, static_cast<std::int64_t>(since.value)});
  }
  return modes;
}

}  // namespace passel

// What a ps does for those who read the values of its job and are no part of it.

#include <sys/mman.h>

#include <cerrno>
#include <optional>

#include "base/clock.h"
#include "base/memory_file.h"
#include "base/nvtx.h"
#include "cluster/json_message.h"
#include "shm/ps_host.h"
#include "store/shadow.h"
#include "store/shard_snapshot.h"

namespace passel::shm {

// As "data" in a status.
Json PsHost::WhatIsTold() const {
  if (data_told_.empty()) return {};
  Json data = data_told_[0];
  data["also"] = Json::List(data_told_.begin() + 1, data_told_.end());
  return data;
}

Status PsHost::TakeSnapshot(const Peer&, Exchange& exchange) {
  PASSEL_ASSIGN_OR_RETURN(const bool values, exchange.Argument(true));
  Json& answer = exchange.answer;
  answer["chief"] = options_.names.chief_name;
  // Acquire: who sees the word sees the values.
  if (!arena_ || arena_->memory().state->initialized.load(std::memory_order_acquire) == 0) {
    return {};
  }
  std::optional<nvtx::Range> range;  // of a copy
  if (values || !exchange.request_fds.empty()) {
    range.emplace(nvtx::Event::kSnapshot, options_.me.index);
  }
  if (!exchange.request_fds.empty()) return CopyTo(exchange.request_fds[0].get());
  answer["snapshot"] = true;
  answer["data"] = WhatIsTold();
  const auto steps = [&answer](std::int64_t first, std::int64_t last) {
    answer["global_step"] = first;
    answer["last_global_step"] = last;
  };
  if (!values) {
    const std::int64_t step = arena_->memory().state->global_step.load(std::memory_order_acquire);
    steps(step, step);
    return {};
  }
  PASSEL_ASSIGN_OR_RETURN(const MemoryBudget budget, ReadMemoryBudget());
  const ShadowReader shadow(arena_->memory());
  const bool lead = options_.me.index == 0;
  PASSEL_ASSIGN_OR_RETURN(ShardCopy copy, CopyShard(arena_->memory(), lead, budget));
  steps(copy.global_step, copy.last_global_step);
  if (arena_->plan().on_device && lead) {
    const ShadowSteps of = shadow.Steps(copy.last_global_step);
    steps(of.first, of.last);
    answer["shadow_age_ns"] = of.age_ns;
  }
  if (copy.exact_round) answer["exact_round"] = *copy.exact_round;
  answer["rounds"] = copy.rounds;
  exchange.Add(std::move(copy.values));
  return exchange.AddText("passel.plan", ToJson(arena_->plan()));
}

// The memory is the reader's: sealed, so that it cannot be taken from under us.
Status PsHost::CopyTo(int memory) {
  std::size_t bytes = 0;
  const Status sealed = CheckSeals(memory, &bytes);
  const std::size_t needed = arena_->memory().floats * sizeof(float);
  if (!sealed.ok() || bytes < needed) {
    return DataLoss("a copy goes to sealed memory that is large enough");
  }
  void* const base =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory, 0);
  if (base == MAP_FAILED) return ErrnoStatus(errno, "cannot map the memory of a reader");
  const std::vector<float*> out = {static_cast<float*>(base)};
  CopyShards({&arena_->memory(), 1}, {&out, 1}, copy_threads_, [this] { readers_.Renew(); });
  ::munmap(base, bytes);
  return {};
}

Status PsHost::GetPlan(const Peer&, Exchange& exchange) {
  if (!arena_) return {};
  return exchange.AddText("passel.plan", ToJson(arena_->plan()));
}

Status PsHost::Meet(const Peer& peer, Exchange& exchange) {
  if (options_.me.index != 0 || !arena_) {
    return FailedPrecondition("workers meet where ps/0 says, once the job has begun: ask that");
  }
  exchange.reads = true;
  PASSEL_ASSIGN_OR_RETURN(const std::optional<std::int64_t> met,
                          readers_.Ask(arena_->memory(), peer.connection));
  exchange.waits = !met;
  if (met) exchange.answer["global_step"] = *met;
  return {};
}

Status PsHost::GoOn(const Peer& peer, Exchange& exchange) {
  PASSEL_ASSIGN_OR_RETURN(const MeetingCost cost, readers_.GoOn(peer.connection));
  exchange.answer["gathering_ns"] = cost.gathering.count();
  exchange.answer["held_ns"] = cost.held.count();
  return {};
}

}  // namespace passel::shm

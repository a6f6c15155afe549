#include "base/nvtx.h"

#include <cstdlib>

#include "base/log.h"

#if defined(PASSEL_NVTX)
#include <nvtx3/nvToolsExt.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#endif

namespace passel::nvtx {

bool internal::g_attached = false;

namespace {

constexpr const char* kToolVariable = "NVTX_INJECTION64_PATH";

}  // namespace

void WarnIfMissing() {
  const char* const tool = std::getenv(kToolVariable);
  if (tool == nullptr || *tool == '\0' || Attached()) return;
  if (kBuiltIn) {
    LogWarning(
        "{} names {}, but no tool attached, so no ranges are recorded: name an NVTX injection "
        "library that this user can read",
        kToolVariable, tool);
  } else {
    LogWarning("{} names {}, but no ranges are recorded: this passel was built {}", kToolVariable,
               tool, Describe());
  }
}

#if defined(PASSEL_NVTX)

namespace {

// In the order of the categories' numbers, which begin with 1.
enum Category : std::uint32_t {
  kStepCategory,
  kPullCategory,
  kPushCategory,
  kApplyCategory,
  kComputeCategory,
  kBarrierCategory,
  kCheckpointCategory,
  kIoCategory,
  kEvaluationCategory,
  kControlCategory,
  kFaultCategory,
  kCategories,
};
constexpr std::array<const char*, kCategories> kCategoryNames = {
    "step",       "pull", "push",       "apply",   "compute", "barrier",
    "checkpoint", "io",   "evaluation", "control", "fault"};

struct Entry {
  Event event;
  const char* name;
  Category category;
};
constexpr std::array kEntries = {
    Entry{Event::kStep, "step", kStepCategory},
    Entry{Event::kPull, "pull", kPullCategory},
    Entry{Event::kCompute, "compute", kComputeCategory},
    Entry{Event::kPush, "push", kPushCategory},
    Entry{Event::kWait, "wait", kBarrierCategory},
    Entry{Event::kGather, "gather", kComputeCategory},
    Entry{Event::kForward, "forward", kComputeCategory},
    Entry{Event::kBackward, "backward", kComputeCategory},
    Entry{Event::kLaunch, "launch", kComputeCategory},
    Entry{Event::kAwaitDevice, "await_device", kComputeCategory},
    Entry{Event::kApply, "apply", kApplyCategory},
    Entry{Event::kAwaitRound, "await_round", kBarrierCategory},
    Entry{Event::kAwaitSlowest, "await_slowest", kBarrierCategory},
    Entry{Event::kChangeMode, "change_mode", kBarrierCategory},
    Entry{Event::kEvaluate, "evaluate", kEvaluationCategory},
    Entry{Event::kShadow, "shadow", kCheckpointCategory},
    Entry{Event::kSave, "save", kCheckpointCategory},
    Entry{Event::kAttach, "attach", kControlCategory},
    Entry{Event::kInitialize, "initialize", kControlCategory},
    Entry{Event::kAwaitValues, "await_values", kBarrierCategory},
    Entry{Event::kServe, "serve", kControlCategory},
    Entry{Event::kWatch, "watch", kControlCategory},
    Entry{Event::kCreateArena, "create_arena", kControlCategory},
    Entry{Event::kSnapshot, "snapshot", kCheckpointCategory},
    Entry{Event::kStartTask, "start_task", kControlCategory},
    Entry{Event::kEndTasks, "end_tasks", kControlCategory},
    Entry{Event::kLoadData, "load_data", kIoCategory},
    Entry{Event::kMapData, "map_data", kIoCategory},
    Entry{Event::kRound, "round", kBarrierCategory},
    Entry{Event::kFetchArenas, "fetch_arenas", kControlCategory},
    Entry{Event::kGradientSkipped, "gradient_skipped", kFaultCategory},
    Entry{Event::kNotFinite, "not_finite", kFaultCategory},
    Entry{Event::kGradientDropped, "gradient_dropped", kFaultCategory},
    Entry{Event::kDeviceFailed, "device_failed", kFaultCategory},
    Entry{Event::kBlockTakenOver, "block_taken_over", kFaultCategory},
    Entry{Event::kRoundTakenOver, "round_taken_over", kFaultCategory},
    Entry{Event::kWorkerDied, "worker_died", kFaultCategory},
    Entry{Event::kWorkerEvicted, "worker_evicted", kFaultCategory},
    Entry{Event::kGivenUp, "given_up", kFaultCategory},
    Entry{Event::kFencedOff, "fenced_off", kFaultCategory},
    Entry{Event::kModeWished, "mode_wished", kControlCategory},
    Entry{Event::kTaskDied, "task_died", kFaultCategory},
    Entry{Event::kTaskRestarted, "task_restarted", kFaultCategory},
    Entry{Event::kStopping, "stopping", kControlCategory},
};
constexpr auto kEvents = static_cast<std::size_t>(Event::kCount);

constexpr bool InOrder() {
  if (kEntries.size() != kEvents) return false;
  for (std::size_t i = 0; i < kEvents; ++i) {
    if (kEntries[i].event != static_cast<Event>(i)) return false;
  }
  return true;
}
static_assert(InOrder(), "every event has its entry, in the order of the enumeration");

// Written once, by Initialize().
nvtxDomainHandle_t g_domain = nullptr;
std::array<nvtxStringHandle_t, kEvents> g_strings{};
bool g_initialized = false;

nvtxEventAttributes_t Attributes(Event event, std::int64_t payload) noexcept {
  const auto index = static_cast<std::size_t>(event);
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.category = kEntries[index].category + 1;
  attributes.payloadType = NVTX_PAYLOAD_TYPE_INT64;
  attributes.payload.llValue = payload;
  if (g_strings[index] != nullptr) {
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = g_strings[index];
  } else {  // a tool that registers none
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = kEntries[index].name;
  }
  return attributes;
}

}  // namespace

std::string Describe() { return "with NVTX, headers from " PASSEL_NVTX_HEADERS; }

void Initialize() {
  if (g_initialized) return;
  g_initialized = true;
  nvtxInitialize(nullptr);
  g_domain = nvtxDomainCreateA("passel");
  // None: no tool, or one that does not want this domain.
  if (g_domain == nullptr) return;
  for (std::uint32_t c = 0; c < kCategories; ++c) {
    nvtxDomainNameCategoryA(g_domain, c + 1, kCategoryNames[c]);
  }
  for (std::size_t i = 0; i < kEvents; ++i) {
    g_strings[i] = nvtxDomainRegisterStringA(g_domain, kEntries[i].name);
  }
  internal::g_attached = true;
}

void NameThread(const std::string& name) {
  if (!Attached()) return;
  nvtxNameOsThreadA(static_cast<std::uint32_t>(::syscall(SYS_gettid)), name.c_str());
}

void internal::Push(Event event, std::int64_t payload) noexcept {
  const nvtxEventAttributes_t attributes = Attributes(event, payload);
  nvtxDomainRangePushEx(g_domain, &attributes);
}

void internal::Pop() noexcept { nvtxDomainRangePop(g_domain); }

std::uint64_t internal::Start(Event event, std::int64_t payload) noexcept {
  const nvtxEventAttributes_t attributes = Attributes(event, payload);
  return nvtxDomainRangeStartEx(g_domain, &attributes);
}

void internal::End(std::uint64_t id) noexcept { nvtxDomainRangeEnd(g_domain, id); }

void internal::MarkNow(Event event, std::int64_t payload) noexcept {
  const nvtxEventAttributes_t attributes = Attributes(event, payload);
  nvtxDomainMarkEx(g_domain, &attributes);
}

#else

std::string Describe() { return "without NVTX: " PASSEL_NVTX_REASON; }
void Initialize() {}
void NameThread(const std::string&) {}
// Attached() is false at compile time: nobody calls these, but a debug build links them.
void internal::Push(Event, std::int64_t) noexcept {}
void internal::Pop() noexcept {}
std::uint64_t internal::Start(Event, std::int64_t) noexcept { return 0; }
void internal::End(std::uint64_t) noexcept {}
void internal::MarkNow(Event, std::int64_t) noexcept {}

#endif

}  // namespace passel::nvtx

#include "base/nvtx.h"

#include <cstdlib>

#include "base/log.h"

#if defined(PASSEL_NVTX)
#include <nvtx3/nvToolsExt.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <string_view>
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

constexpr std::array kCategories = {"step",       "pull",    "push",       "apply",
                                    "compute",    "barrier", "checkpoint", "io",
                                    "evaluation", "control", "fault"};

// Of the tool; they begin with 1. An unknown name does not compile.
consteval std::uint32_t NumberOfCategory(std::string_view name) {
  std::uint32_t number = 1;
  while (kCategories.at(number - 1) != name) ++number;
  return number;
}

struct Entry {
  const char* name;
  std::uint32_t category;
};
constexpr std::array kEntries = {
#define PASSEL_NVTX_EVENT(event, name, kind, category, ...) Entry{name, NumberOfCategory(category)},
#include "base/nvtx_events.inc"
};

// Written once, by Initialize().
nvtxDomainHandle_t g_domain = nullptr;
std::array<nvtxStringHandle_t, kEntries.size()> g_strings{};
bool g_initialized = false;

nvtxEventAttributes_t Attributes(Event event, std::int64_t payload) noexcept {
  const auto index = static_cast<std::size_t>(event);
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.category = kEntries[index].category;
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
  std::uint32_t category = 0;
  for (const char* const name : kCategories) nvtxDomainNameCategoryA(g_domain, ++category, name);
  for (std::size_t i = 0; i < kEntries.size(); ++i) {
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

// A tool that NVTX loads in place of a profiler (NVTX_INJECTION64_PATH): it appends every call as
// one line of JSON to the file that PASSEL_NVTX_RECORD names, and refuses to start without that.
//
//   {"pid":1,"tid":1,"ns":1,"op":"push","domain":"passel","message":"pull","registered":true,
//    "category":2,"payload":7}
//
//   op         domain_create, name_category, register_string, push, pop, start, end, mark,
//              name_thread; plain: a call without a domain, of which passel makes none
//   ns         CLOCK_MONOTONIC
//   category   its number; the message of name_category is its name
//   id         of start and end
//
// Threads    Any: a line is one write(2) to a file opened with O_APPEND, of all processes.

#include <fcntl.h>
#include <nvtx3/nvToolsExt.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

namespace {

int g_file = -1;
std::atomic<std::uint64_t> g_next_id{0};

// What a handle points to. They live as long as the process, as NVTX asks.
struct Name {
  std::string text;
};

const char* TextOf(const void* handle) {
  return handle == nullptr ? "" : static_cast<const Name*>(handle)->text.c_str();
}

struct Call {
  const char* op;
  const void* domain = nullptr;
  const char* message = "";
  bool registered = false;
  std::uint32_t category = 0;
  int payload_type = NVTX_PAYLOAD_UNKNOWN;
  std::int64_t payload = 0;
  std::uint64_t id = 0;
};

void Write(const Call& call) {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  char line[512];
  const int length = std::snprintf(
      line, sizeof line,
      "{\"pid\":%d,\"tid\":%ld,\"ns\":%" PRId64
      ",\"op\":\"%s\",\"domain\":\"%s\",\"message\":\"%s\",\"registered\":%s,\"category\":%" PRIu32
      ",\"payload_type\":%d,\"payload\":%" PRId64 ",\"id\":%" PRIu64 "}\n",
      ::getpid(), ::syscall(SYS_gettid),
      static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec, call.op,
      TextOf(call.domain), call.message, call.registered ? "true" : "false", call.category,
      call.payload_type, call.payload, call.id);
  if (length <= 0 || length >= static_cast<int>(sizeof line) ||
      ::write(g_file, line, static_cast<std::size_t>(length)) != length) {
    std::abort();  // a test must not pass on half a record
  }
}

Call CallOf(const char* op, nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  Call call{op, domain};
  call.registered = event->messageType == NVTX_MESSAGE_TYPE_REGISTERED;
  call.message = call.registered ? TextOf(event->message.registered) : event->message.ascii;
  call.category = event->category;
  call.payload_type = event->payloadType;
  call.payload = event->payload.llValue;
  return call;
}

nvtxDomainHandle_t DomainCreate(const char* name) {
  auto* domain = new Name{name};
  Write({"domain_create", domain});
  return reinterpret_cast<nvtxDomainHandle_t>(domain);
}

void NameCategory(nvtxDomainHandle_t domain, std::uint32_t category, const char* name) {
  Call call{"name_category", domain, name};
  call.category = category;
  Write(call);
}

nvtxStringHandle_t RegisterString(nvtxDomainHandle_t domain, const char* text) {
  Write({"register_string", domain, text});
  return reinterpret_cast<nvtxStringHandle_t>(new Name{text});
}

int RangePush(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  Write(CallOf("push", domain, event));
  return 0;
}

int RangePop(nvtxDomainHandle_t domain) {
  Write({"pop", domain});
  return 0;
}

nvtxRangeId_t RangeStart(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  Call call = CallOf("start", domain, event);
  // From 0 on: a handle that looks like none is one all the same.
  call.id = g_next_id.fetch_add(1, std::memory_order_relaxed);
  Write(call);
  return call.id;
}

void RangeEnd(nvtxDomainHandle_t domain, nvtxRangeId_t id) {
  Call call{"end", domain};
  call.id = id;
  Write(call);
}

void MarkEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  Write(CallOf("mark", domain, event));
}

void NameThread(std::uint32_t, const char* name) { Write({"name_thread", nullptr, name}); }

int PlainPush(const nvtxEventAttributes_t*) {
  Write({"plain"});
  return 0;
}

template <typename Function>
void Install(NvtxFunctionTable table, unsigned size, unsigned id, Function function) {
  if (id < size && table[id] != nullptr) {
    *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table) {
  const char* const path = std::getenv("PASSEL_NVTX_RECORD");
  if (path == nullptr) return 0;
  if (g_file < 0) g_file = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable core = nullptr;
  NvtxFunctionTable core2 = nullptr;
  unsigned core_size = 0;
  unsigned core2_size = 0;
  if (g_file < 0 || callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &core_size) == 0 ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &core2, &core2_size) == 0) {
    return 0;
  }
  Install(core, core_size, NVTX_CBID_CORE_NameOsThreadA, NameThread);
  Install(core, core_size, NVTX_CBID_CORE_RangePushEx, PlainPush);
  Install(core2, core2_size, NVTX_CBID_CORE2_DomainCreateA, DomainCreate);
  Install(core2, core2_size, NVTX_CBID_CORE2_DomainNameCategoryA, NameCategory);
  Install(core2, core2_size, NVTX_CBID_CORE2_DomainRegisterStringA, RegisterString);
  Install(core2, core2_size, NVTX_CBID_CORE2_DomainRangePushEx, RangePush);
  Install(core2, core2_size, NVTX_CBID_CORE2_DomainRangePop, RangePop);
  Install(core2, core2_size, NVTX_CBID_CORE2_DomainRangeStartEx, RangeStart);
  Install(core2, core2_size, NVTX_CBID_CORE2_DomainRangeEnd, RangeEnd);
  Install(core2, core2_size, NVTX_CBID_CORE2_DomainMarkEx, MarkEx);
  return 1;
}

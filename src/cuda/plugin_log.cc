#include "cuda/plugin_log.h"

namespace passel::cuda {
namespace {

void (*g_info)(const char*) = nullptr;
void (*g_warning)(const char*) = nullptr;

}  // namespace

void SetLog(const AcceleratorHost& host) {
  g_info = host.log_info;
  g_warning = host.log_warning;
}

void PluginLogInfo(const std::string& text) {
  if (g_info != nullptr) g_info(text.c_str());
}

void PluginLogWarning(const std::string& text) {
  if (g_warning != nullptr) g_warning(text.c_str());
}

}  // namespace passel::cuda

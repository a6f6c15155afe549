// plugin_log.h - log lines of the plugin, through the log of the program that loaded it.
//
// Thread safe after SetLog(), which is called once, when the plugin is loaded.

#pragma once

#include <string>

#include "compute/accelerator.h"

namespace passel::cuda {

void SetLog(const AcceleratorHost& host);
void PluginLogInfo(const std::string& text);
void PluginLogWarning(const std::string& text);

}  // namespace passel::cuda

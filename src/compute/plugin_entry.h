// plugin_entry.h - a plugin's half of the handshake with the program that loads it.

#pragma once

#include "compute/accelerator.h"

namespace passel {

/// What passel_accelerator_v1() does: fills in `*plugin`, with `open`, if `host` is of the same
/// build as this code. Returns what passel_accelerator_v1() is to return.
int AnswerHost(const AcceleratorHost& host, decltype(AcceleratorPlugin::open) open,
               AcceleratorPlugin* plugin);

}  // namespace passel

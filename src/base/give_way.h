// give_way.h - threads that let others have the processor first.

#pragma once

namespace passel {

/// The thread that calls, and those that it starts from then on, get a small share of a core that
/// others want too (nice 10; there is no way back). The whole core if nobody does.
void GiveWay();

/// Whether it does: then what it must do is done by it alone, and helpers only help.
bool GivesWay();

/// The thread that calls only gets what nobody else wants (SCHED_IDLE; there is no way back): it
/// never delays who has work. Nobody may wait long for what such a thread has begun.
void OnlyHelp();

}  // namespace passel

// give_way.h - threads that let others have the processor first.

#pragma once

namespace passel {

/// The thread that calls, and those that it starts from then on, get a small share of a core that
/// others want too (nice 10; there is no way back). The whole core if nobody does.
void GiveWay();

/// Whether it does: then one thread is enough for what several could do.
bool GivesWay();

}  // namespace passel

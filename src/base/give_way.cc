#include "base/give_way.h"

#include <sys/resource.h>
#include <unistd.h>

namespace passel {
namespace {

constexpr int kNice = 10;

id_t ThisThread() { return static_cast<id_t>(::gettid()); }

}  // namespace

void GiveWay() { (void)::setpriority(PRIO_PROCESS, ThisThread(), kNice); }

bool GivesWay() { return ::getpriority(PRIO_PROCESS, ThisThread()) >= kNice; }

}  // namespace passel

#include "base/give_way.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

namespace passel {
namespace {

constexpr int kNice = 10;

id_t ThisThread() { return static_cast<id_t>(::gettid()); }

}  // namespace

void GiveWay() { (void)::setpriority(PRIO_PROCESS, ThisThread(), kNice); }

void OnlyHelp() {
  const sched_param none{};
  (void)::sched_setscheduler(0, SCHED_IDLE, &none);
}

bool GivesWay() { return ::getpriority(PRIO_PROCESS, ThisThread()) >= kNice; }

}  // namespace passel

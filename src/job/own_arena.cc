#include "job/own_arena.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/nvtx.h"
#include "cluster/endpoint.h"
#include "job/job_status.h"
#include "shm/ps_host.h"

namespace passel::job {
namespace {

shm::PsHostOptions OwnHostOptions(const std::string& job_id, const std::string& about_data) {
  shm::PsHostOptions options;
  options.me = {.job_id = job_id, .role = Role::kPs};
  options.supervised = true;  // by us: it serves until we end it
  options.alone = true;
  options.data = about_data;
  options.describe = DescribeJob;
  return options;
}

}  // namespace

class OwnArena::Host {
 public:
  // A token that nobody knows: nobody can join.
  Host(const std::string& job_id, const std::string& about_data, FileDescriptor listening,
       shm::Arena arena)
      : end_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        host_(OwnHostOptions(job_id, about_data), JobToken::Generate(), std::move(listening),
              std::move(arena)),
        thread_([this] {
          nvtx::NameThread("control");
          host_.Serve(end_.get());
        }) {}

  ~Host() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto put = ::write(end_.get(), &one, sizeof one);
    thread_.join();
  }

 private:
  FileDescriptor end_;  // readable: the thread is to end
  shm::PsHost host_;
  std::thread thread_;  // last: it uses both
};

OwnArena::OwnArena() = default;
OwnArena::~OwnArena() = default;

Result<std::unique_ptr<OwnArena>> OwnArena::Make(const std::string& job_id, const StorePlan& plan,
                                                 HugePages huge_pages,
                                                 const std::string& about_data) {
  PASSEL_ASSIGN_OR_RETURN(FileDescriptor listening, Listen(job_id, Role::kPs, 0));
  PASSEL_ASSIGN_OR_RETURN(const MemoryBudget budget, ReadMemoryBudget());
  PASSEL_ASSIGN_OR_RETURN(
      shm::Arena arena,
      shm::Arena::Create(plan, 0, {.job_id = job_id, .huge_pages = huge_pages}, budget));
  arena.Publish();
  if (!arena.huge_page_report().empty()) LogInfo("{}", arena.huge_page_report());
  std::unique_ptr<OwnArena> own(new OwnArena());
  own->memory_ = arena.memory();
  own->host_ = std::make_unique<Host>(job_id, about_data, std::move(listening), std::move(arena));
  return own;
}

}  // namespace passel::job

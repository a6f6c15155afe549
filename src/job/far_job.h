// far_job.h - a job whose ps are on other hosts, as somebody asks it who is no task of it: by the
// sealed control connection, at the addresses of the ps, with the token of the job.
//
// What is asked the ps passes on to itself, as somebody of its own host would ask it
// (job/remote_door.h).
//
// Threads    Any; each question has a connection of its own.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/json.h"
#include "base/status.h"
#include "cluster/cluster_spec.h"
#include "fabric/control/tcp_handshake.h"

namespace passel::job {

struct FarJob {
  std::string job_id;
  std::vector<HostPort> ps;  ///< as --ps_hosts names them
  fabric::DoorKey key;
};

/// What was typed to name one.
struct FarJobFlags {
  std::string ps_hosts, job_id, token_file;
  bool insecure_no_auth = false;
};
/// REQUIRES: ps_hosts is not empty. Errors: kInvalidArgument, in one sentence; those of
/// JobToken::Read().
Result<FarJob> NameFarJob(const FarJobFlags& flags);

/// One question to ps/`shard`: {"ask":NAME, ...} of job/remote_errand.h. Returns the answer, with
/// the text that came beside it as "text". Errors: what the ps answers; kNotFound: nobody listens
/// there; kPermissionDenied: another token or job; kDeadlineExceeded, naming the ps.
Result<Json> AskFar(const FarJob& job, int shard, const Json& question, Deadline deadline);

/// A place for a worker that joins, held on ps/0: who asks for it meanwhile, on any host, gets
/// another.
struct FarPlace {
  int worker = 0;
  std::shared_ptr<void> holds;  ///< as long as this lives
};
/// The first of `workers` that nobody holds. Errors: those of AskFar(); kResourceExhausted: others
/// hold all of them.
Result<FarPlace> ReserveFarPlace(const FarJob& job, const std::vector<int>& workers,
                                 Deadline deadline);

/// What ps/0 says of the job: as AskJob() of job/ask_jobs.h. Errors: those of AskFar(); kDataLoss.
Result<Json> StatusOfFar(const FarJob& job, Deadline deadline);

/// "ps/0 at a:2222".
std::string NameOfPs(const FarJob& job, int shard);

}  // namespace passel::job

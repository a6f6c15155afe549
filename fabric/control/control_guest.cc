#include "fabric/control/control_guest.h"

#include <fmt/core.h>

#include "cluster/json_message.h"

namespace passel::fabric {

ControlGuest::ControlGuest(AcceptedTcp accepted, const DoorKey& key, const TaskFacts& me,
                           Deadline limit, std::chrono::nanoseconds stall_limit)
    : socket_(std::move(accepted.socket)),
      from_(accepted.peer),
      network_(from_.Network()),
      me_(me),
      limit_(limit),
      stall_limit_(stall_limit),
      handshake_(key, me.job_id) {}

Result<bool> ControlGuest::Advance() {
  if (state_ == GuestState::kHello) PASSEL_RETURN_IF_ERROR(Hello());
  if (state_ == GuestState::kProof) PASSEL_RETURN_IF_ERROR(Proof());
  if (state_ == GuestState::kFacts) return Facts();
  return false;
}

Status ControlGuest::Hello() {
  PASSEL_ASSIGN_OR_RETURN(const std::size_t came,
                          ReceiveNow(socket_.get(), std::span(hello_).subspan(got_)));
  got_ += came;
  if (got_ < hello_.size()) return {};
  Status status;
  const AnswerBytes answer = handshake_.Answer(hello_, &status);
  PASSEL_ASSIGN_OR_RETURN(const std::size_t sent, SendNow(socket_.get(), answer));
  PASSEL_RETURN_IF_ERROR(status);
  // It has been sent nothing else so far.
  if (sent < answer.size()) return Unavailable("it does not read");
  state_ = GuestState::kProof;
  got_ = 0;
  return {};
}

Status ControlGuest::Proof() {
  PASSEL_ASSIGN_OR_RETURN(const std::size_t came,
                          ReceiveNow(socket_.get(), std::span(proof_).subspan(got_)));
  got_ += came;
  if (got_ < proof_.size()) return {};
  StreamKeys keys;
  PASSEL_RETURN_IF_ERROR(handshake_.Check(proof_, &keys));
  channel_ = std::make_shared<Channel>(std::move(socket_), keys, stall_limit_);
  state_ = GuestState::kFacts;
  return {};
}

Result<bool> ControlGuest::Facts() {
  const Result<Json> json = channel_->ReceiveJson(Deadline::After({}));
  if (!json.ok()) {
    if (json.status().code() == Code::kDeadlineExceeded) return false;
    return json.status();
  }
  PASSEL_ASSIGN_OR_RETURN(peer_, FactsFromJson(*json));
  const Claim& claim = handshake_.claim();
  Status fits;
  if (peer_.role != claim.role || peer_.index != claim.index) {
    fits = PermissionDenied(
        fmt::format("{} has proved to be {}/{}", peer_.Name(), RoleName(claim.role), claim.index));
  } else {
    fits = CheckFacts(me_, peer_);
  }
  if (!fits.ok()) {
    Refuse(fits);
    return Unavailable(fits.message());
  }
  return true;
}

Status ControlGuest::Accept(const TaskFacts& mine, const LeaseOptions& lease) {
  PASSEL_RETURN_IF_ERROR(channel_->SendJson(FactsJson(mine), Deadline::After({})));
  state_ = GuestState::kOpen;
  const LeaseOptions agreed = Agreed(lease, peer_.lease());
  SetSilenceLimit(channel_->fd(), agreed.kernel_limit());
  liveness = Liveness(agreed);
  return {};
}

void ControlGuest::Refuse(const Status& why) {
  (void)channel_->SendJson(ErrorJson(why), Deadline::After({}));
}

}  // namespace passel::fabric

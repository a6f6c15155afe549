#include "cluster/handshake.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "base/namespaces.h"
#include "cluster/json_message_internal.h"

namespace passel {
namespace {

// [Role]
constexpr std::string_view kRoles[] = {"worker", "ps", "supervisor", "control", "evaluator"};

}  // namespace

std::string_view RoleName(Role role) { return kRoles[static_cast<std::size_t>(role)]; }

std::optional<Role> ParseRole(std::string_view name) {
  const auto found = std::ranges::find(kRoles, name);
  if (found == std::end(kRoles)) return std::nullopt;
  return static_cast<Role>(found - std::begin(kRoles));
}

std::string NameOf(const Peer& peer) {
  return fmt::format("{}/{}", RoleName(peer.role), peer.index);
}

ClientHandshake::ClientHandshake(const Introduction& me, const MemoryFormat& format)
    : job_id_(me.job_id) {
  const ProcessIdentity self = SelfIdentity();
  const nlohmann::json hello = {{"hello", kProtocolVersion},
                                {"role", RoleName(me.role)},
                                {"index", me.index},
                                {"cluster", me.cluster_hash},
                                {"structure", format.structure},
                                {"layout", format.layout},
                                {"pid", self.pid},
                                {"start_time", self.start_time},
                                {"pid_namespace", self.pid_namespace},
                                {"clocks", ClockOffsets()},
                                {"nonce", MakeNonce()}};
  hello_ = hello.dump();
}

Result<std::string> ClientHandshake::Answer(const std::string& challenge, const JobToken& token,
                                            const std::string& server) const {
  PASSEL_ASSIGN_OR_RETURN(const nlohmann::json json, ParseMessage(challenge));
  const std::string transcript = hello_ + Field<std::string>(json, "nonce", "");
  if (!CheckProof(token, job_id_, ProofSide::kServer, transcript,
                  Field<std::string>(json, "proof", ""))) {
    return PermissionDenied(
        fmt::format("{} has another job token: give all tasks the same --token_file", server));
  }
  const std::string proof = MakeProof(token, job_id_, ProofSide::kClient, transcript);
  return nlohmann::json{{"proof", proof}}.dump();
}

ServerHandshake::ServerHandshake(const JobToken& token, const Introduction& me,
                                 const MemoryFormat& format)
    : token_(token),
      me_(me),
      format_(format),
      clocks_(ClockOffsets()),
      pid_namespace_(SelfIdentity().pid_namespace) {}

Status ServerHandshake::CheckHello(const std::string& text, Peer* peer) const {
  PASSEL_ASSIGN_OR_RETURN(const nlohmann::json hello, ParseMessage(text));
  const auto role = ParseRole(Field<std::string>(hello, "role", ""));
  peer->index = Field<int>(hello, "index", -1);
  if (Field<int>(hello, "hello", 0) != kProtocolVersion || !role || peer->index < 0) {
    return DataLoss(fmt::format("this task speaks version {} of the protocol", kProtocolVersion));
  }
  peer->role = *role;
  if (*role == Role::kControl) return {};
  peer->identity.pid = Field<std::int32_t>(hello, "pid", 0);
  peer->identity.start_time = Field<std::uint64_t>(hello, "start_time", 0);
  peer->identity.pid_namespace = Field<std::uint64_t>(hello, "pid_namespace", 0);
  // When this connection ends, that process is taken for dead.
  if (const ProcessIdentity& said = peer->identity;
      said.pid > 0 && said.pid_namespace == pid_namespace_ && said.pid != peer->pid) {
    return PermissionDenied(fmt::format("{} says that it is process {}, and is process {}",
                                        NameOf(*peer), said.pid, peer->pid));
  }
  if (Field<std::uint32_t>(hello, "layout", 0) != format_.layout ||
      Field<std::uint64_t>(hello, "structure", 0) != format_.structure) {
    return FailedPrecondition(fmt::format(
        "{} is another build of passel (arena layout {}, here {}): start all tasks from the "
        "same build",
        NameOf(*peer), Field<std::uint32_t>(hello, "layout", 0), format_.layout));
  }
  // Heartbeats and start times are compared.
  if (const auto theirs = Field<std::string>(hello, "clocks", clocks_); theirs != clocks_) {
    return FailedPrecondition(fmt::format(
        "{} is in another time namespace (its clocks are ahead by {} s and ns) than process {} "
        "of job {} ({}): start all tasks in one time namespace",
        NameOf(*peer), theirs, ::getpid(), me_.job_id, clocks_));
  }
  if (const auto theirs = Field<std::uint64_t>(hello, "cluster", 0); theirs != me_.cluster_hash) {
    return FailedPrecondition(fmt::format(
        "{} was started with another cluster (hash {:016x}) than process {} of job {} (hash "
        "{:016x}): give all tasks the same --ps_hosts and --worker_hosts",
        NameOf(*peer), theirs, ::getpid(), me_.job_id, me_.cluster_hash));
  }
  return {};
}

Result<std::string> ServerHandshake::Challenge(const std::string& hello, Peer* peer,
                                               std::string* transcript) const {
  PASSEL_RETURN_IF_ERROR(CheckHello(hello, peer));
  if (peer->role == Role::kControl) return nlohmann::json{{"ok", true}}.dump();
  const std::string nonce = MakeNonce();
  *transcript = hello + nonce;
  const std::string proof = MakeProof(token_, me_.job_id, ProofSide::kServer, *transcript);
  return nlohmann::json{{"nonce", nonce}, {"proof", proof}}.dump();
}

Status ServerHandshake::CheckAnswer(const std::string& answer,
                                    const std::string& transcript) const {
  PASSEL_ASSIGN_OR_RETURN(const nlohmann::json json, ParseMessage(answer));
  if (CheckProof(token_, me_.job_id, ProofSide::kClient, transcript,
                 Field<std::string>(json, "proof", ""))) {
    return {};
  }
  return PermissionDenied("the proof of the job token is wrong");
}

}  // namespace passel

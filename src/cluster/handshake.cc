#include "cluster/handshake.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "base/namespaces.h"
#include "cluster/json_message.h"

namespace passel {
namespace {

// [Role]
constexpr std::string_view kRoles[] = {"worker", "ps", "supervisor", "control", "evaluator"};

// What a task says of itself, and so what is read. A number that is not there is one that nobody
// has.
struct Hello {
  int version = 0;
  std::string role;
  int index = -1;
  std::uint64_t cluster = 0;
  MemoryFormat format;
  ProcessIdentity identity;
  std::string clocks, nonce;
};
void JsonMembers(auto& members, JsonPart<Hello> auto& hello) {
  members.OrDefault("hello", hello.version);
  members.OrDefault("role", hello.role);
  members.OrDefault("index", hello.index);
  members.OrDefault("cluster", hello.cluster);
  members.OrDefault("structure", hello.format.structure);
  members.OrDefault("layout", hello.format.layout);
  members.OrDefault("pid", hello.identity.pid);
  members.OrDefault("start_time", hello.identity.start_time);
  members.OrDefault("pid_namespace", hello.identity.pid_namespace);
  members.OrDefault("clocks", hello.clocks);
  members.OrDefault("nonce", hello.nonce);
}

// "" where there is none, which proves nothing.
Result<std::string> TextOf(const Json& message, std::string_view name) {
  return FieldOr(message, name, std::string());
}

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
  Hello hello;
  hello.version = kProtocolVersion;
  hello.role = RoleName(me.role);
  hello.index = me.index;
  hello.cluster = me.cluster_hash;
  hello.format = format;
  hello.identity = SelfIdentity();
  hello.clocks = ClockOffsets();
  hello.nonce = MakeNonce();
  hello_ = JsonOf(hello).Write();
}

Result<std::string> ClientHandshake::Answer(const std::string& challenge, const JobToken& token,
                                            const std::string& server) const {
  PASSEL_ASSIGN_OR_RETURN(const Json json, ParseMessage(challenge));
  PASSEL_ASSIGN_OR_RETURN(const std::string nonce, TextOf(json, "nonce"));
  PASSEL_ASSIGN_OR_RETURN(const std::string server_proof, TextOf(json, "proof"));
  const std::string transcript = hello_ + nonce;
  if (!CheckProof(token, job_id_, ProofSide::kServer, transcript, server_proof)) {
    return PermissionDenied(
        fmt::format("{} has another job token: give all tasks the same --token_file", server));
  }
  const std::string proof = MakeProof(token, job_id_, ProofSide::kClient, transcript);
  return Json{{"proof", proof}}.Write();
}

ServerHandshake::ServerHandshake(const JobToken& token, const Introduction& me,
                                 const MemoryFormat& format)
    : token_(token),
      me_(me),
      format_(format),
      clocks_(ClockOffsets()),
      pid_namespace_(SelfIdentity().pid_namespace) {}

Status ServerHandshake::CheckHello(const std::string& text, Peer* peer) const {
  PASSEL_ASSIGN_OR_RETURN(const Json json, ParseMessage(text));
  Hello hello;
  hello.clocks = clocks_;
  // Another build may say more, or other things, and is told below that it is one.
  JsonReader reader = ReadMessage(json);
  JsonMembers(reader, hello);
  if (hello.version == kProtocolVersion) PASSEL_RETURN_IF_ERROR(AsDataLoss(reader.status()));
  const auto role = ParseRole(hello.role);
  peer->index = hello.index;
  if (hello.version != kProtocolVersion || !role || peer->index < 0) {
    return DataLoss(fmt::format("this task speaks version {} of the protocol", kProtocolVersion));
  }
  peer->role = *role;
  if (*role == Role::kControl) return {};
  peer->identity = hello.identity;
  // When this connection ends, that process is taken for dead.
  if (const ProcessIdentity& said = peer->identity;
      said.pid > 0 && said.pid_namespace == pid_namespace_ && said.pid != peer->pid) {
    return PermissionDenied(fmt::format("{} says that it is process {}, and is process {}",
                                        NameOf(*peer), said.pid, peer->pid));
  }
  if (hello.format.layout != format_.layout || hello.format.structure != format_.structure) {
    return FailedPrecondition(fmt::format(
        "{} is another build of passel (arena layout {}, here {}): start all tasks from the "
        "same build",
        NameOf(*peer), hello.format.layout, format_.layout));
  }
  // Heartbeats and start times are compared.
  if (hello.clocks != clocks_) {
    return FailedPrecondition(fmt::format(
        "{} is in another time namespace (its clocks are ahead by {} s and ns) than process {} "
        "of job {} ({}): start all tasks in one time namespace",
        NameOf(*peer), hello.clocks, ::getpid(), me_.job_id, clocks_));
  }
  if (hello.cluster != me_.cluster_hash) {
    return FailedPrecondition(fmt::format(
        "{} was started with another cluster (hash {:016x}) than process {} of job {} (hash "
        "{:016x}): give all tasks the same --ps_hosts and --worker_hosts",
        NameOf(*peer), hello.cluster, ::getpid(), me_.job_id, me_.cluster_hash));
  }
  return {};
}

Result<std::string> ServerHandshake::Challenge(const std::string& hello, Peer* peer,
                                               std::string* transcript) const {
  PASSEL_RETURN_IF_ERROR(CheckHello(hello, peer));
  if (peer->role == Role::kControl) return Json{{"ok", true}}.Write();
  const std::string nonce = MakeNonce();
  *transcript = hello + nonce;
  const std::string proof = MakeProof(token_, me_.job_id, ProofSide::kServer, *transcript);
  return Json{{"nonce", nonce}, {"proof", proof}}.Write();
}

Status ServerHandshake::CheckAnswer(const std::string& answer,
                                    const std::string& transcript) const {
  PASSEL_ASSIGN_OR_RETURN(const Json json, ParseMessage(answer));
  PASSEL_ASSIGN_OR_RETURN(const std::string proof, TextOf(json, "proof"));
  if (CheckProof(token_, me_.job_id, ProofSide::kClient, transcript, proof)) return {};
  return PermissionDenied("the proof of the job token is wrong");
}

}  // namespace passel

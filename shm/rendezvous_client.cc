#include "shm/rendezvous_client.h"

#include <fmt/core.h>
#include <unistd.h>

#include "base/memory_file.h"
#include "base/namespaces.h"
#include "shm/json_internal.h"
#include "shm/layout.h"

namespace passel::shm {
namespace {

constexpr std::size_t kMaxStatusBytes = std::size_t{16} << 20;

Result<JsonMessage> Ask(int fd, const nlohmann::json& request, std::span<const int> fds,
                        Deadline deadline) {
  PASSEL_RETURN_IF_ERROR(SendJson(fd, request, fds, deadline));
  PASSEL_ASSIGN_OR_RETURN(JsonMessage answer, ReceiveJson(fd, deadline));
  PASSEL_RETURN_IF_ERROR(ErrorOf(answer.json));
  return answer;
}

Status Unexpected() { return DataLoss("the other task answered something unexpected"); }

}  // namespace

Result<RendezvousClient> RendezvousClient::Connect(const Introduction& me, Role role, int index,
                                                   const JobToken* token, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(RendezvousClient client, Begin(me, role, index, deadline));
  PASSEL_RETURN_IF_ERROR(client.Finish(token, deadline));
  return client;
}

Result<RendezvousClient> RendezvousClient::Begin(const Introduction& me, Role role, int index,
                                                 Deadline deadline) {
  const std::string name = EndpointName(me.job_id, role, index);
  PASSEL_ASSIGN_OR_RETURN(FileDescriptor socket, ConnectAbstract(name, deadline));
  PASSEL_ASSIGN_OR_RETURN(const PeerCredentials server, GetPeerCredentials(socket.get()));
  if (server.uid != ::getuid()) {
    return PermissionDenied(
        fmt::format("the socket @{} is held by process {} of user {}, not by user {}: it is not "
                    "trusted; use another --job_id",
                    name, server.pid, server.uid, ::getuid()));
  }
  if (me.role == Role::kControl) PASSEL_RETURN_IF_ERROR(CheckUidIsEnough());
  RendezvousClient client(std::move(socket), me);
  client.server_pid_ = server.pid;
  client.server_ = fmt::format("{}/{}", RoleName(role), index);
  const ProcessIdentity self = SelfIdentity();
  const nlohmann::json hello = {{"hello", kProtocolVersion},
                                {"role", RoleName(me.role)},
                                {"index", me.index},
                                {"job", me.job_id},
                                {"cluster", me.cluster_hash},
                                {"structure", StructureHash()},
                                {"layout", kLayoutVersion},
                                {"pid", self.pid},
                                {"start_time", self.start_time},
                                {"pid_namespace", self.pid_namespace},
                                {"clocks", ClockOffsets()},
                                {"nonce", MakeNonce()}};
  PASSEL_RETURN_IF_ERROR(SendJson(client.fd(), hello, {}, deadline));
  client.hello_ = hello.dump();
  return client;
}

Status RendezvousClient::Finish(const JobToken* token, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(const JsonMessage answer, ReceiveJson(fd(), deadline));
  PASSEL_RETURN_IF_ERROR(ErrorOf(answer.json));
  if (me_.role == Role::kControl) return {};
  PASSEL_CHECK(token != nullptr, "only control connections need no token");
  const std::string transcript = hello_ + Field<std::string>(answer.json, "nonce", "");
  if (!CheckProof(*token, me_.job_id, ProofSide::kServer, transcript,
                  Field<std::string>(answer.json, "proof", ""))) {
    return PermissionDenied(fmt::format(
        "{} of job {} (process {}) has another job token: give all tasks the same --token_file",
        server_, me_.job_id, server_pid_));
  }
  const std::string proof = MakeProof(*token, me_.job_id, ProofSide::kClient, transcript);
  return Ask(fd(), {{"proof", proof}}, {}, deadline).status();
}

Result<std::optional<FileDescriptor>> RendezvousClient::GetArena(
    bool wait, bool* need_plan, Deadline deadline, std::chrono::nanoseconds every,
    const std::function<void()>& still_waiting) {
  *need_plan = false;
  PASSEL_RETURN_IF_ERROR(SendJson(fd(), {{"get", "arena"}, {"wait", wait}}, {}, deadline));
  Result<JsonMessage> received = ReceiveJson(fd(), deadline.Sooner(every));
  while (received.status().code() == Code::kDeadlineExceeded && !deadline.Expired()) {
    if (still_waiting) still_waiting();
    received = ReceiveJson(fd(), deadline.Sooner(every));
  }
  PASSEL_ASSIGN_OR_RETURN(JsonMessage answer, std::move(received));
  PASSEL_RETURN_IF_ERROR(ErrorOf(answer.json));
  if (Field<bool>(answer.json, "need_plan", false)) {
    *need_plan = true;
    return std::optional<FileDescriptor>();
  }
  if (!Field<bool>(answer.json, "arena", false)) return std::optional<FileDescriptor>();
  if (answer.fds.size() != 1) return Unexpected();
  return std::optional<FileDescriptor>(std::move(answer.fds[0]));
}

Result<FileDescriptor> RendezvousClient::ProposePlan(const std::string& plan_json,
                                                     Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(FileDescriptor text,
                          CreateConstantFile("passel.plan", plan_json.data(), plan_json.size()));
  const int fds[] = {text.get()};
  PASSEL_ASSIGN_OR_RETURN(JsonMessage answer, Ask(fd(), {{"plan", true}}, fds, deadline));
  if (answer.fds.size() != 1) return Unexpected();
  return std::move(answer.fds[0]);
}

Status RendezvousClient::OfferData(const std::string& key, int data_fd, Deadline deadline) {
  const int fds[] = {data_fd};
  return Ask(fd(), {{"offer", "data"}, {"key", key}}, fds, deadline).status();
}

Result<std::optional<FileDescriptor>> RendezvousClient::GetData(const std::string& key,
                                                                Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(JsonMessage answer,
                          Ask(fd(), {{"get", "data"}, {"key", key}}, {}, deadline));
  if (!Field<bool>(answer.json, "data", false)) return std::optional<FileDescriptor>();
  if (answer.fds.size() != 1) return Unexpected();
  return std::optional<FileDescriptor>(std::move(answer.fds[0]));
}

Status RendezvousClient::TellData(const std::string& json, Deadline deadline) {
  return Ask(fd(), {{"tell", "data"}, {"about", nlohmann::json::parse(json, nullptr, false)}}, {},
             deadline)
      .status();
}

Status RendezvousClient::SayHere(int shard, Deadline deadline) {
  return Ask(fd(), {{"here", shard}}, {}, deadline).status();
}

Status RendezvousClient::SayKept(Deadline deadline) {
  return Ask(fd(), {{"kept", true}}, {}, deadline).status();
}

Result<std::optional<ShardSnapshot>> RendezvousClient::GetSnapshot(bool values, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(JsonMessage answer,
                          Ask(fd(), {{"get", "snapshot"}, {"values", values}}, {}, deadline));
  if (!Field<bool>(answer.json, "snapshot", false)) return std::optional<ShardSnapshot>();
  if (answer.fds.size() != (values ? 2u : 0u)) return Unexpected();
  ShardSnapshot snapshot;
  snapshot.global_step = Field<std::int64_t>(answer.json, "global_step", 0);
  snapshot.last_global_step = Field<std::int64_t>(answer.json, "last_global_step", 0);
  snapshot.rounds = Field<bool>(answer.json, "rounds", false);
  snapshot.stopped = Field<bool>(answer.json, "stopped", false);
  if (const auto data = answer.json.find("data"); data != answer.json.end()) {
    snapshot.data = data->dump();
  }
  if (answer.json.contains("exact_round")) {
    snapshot.exact_round = Field<std::uint64_t>(answer.json, "exact_round", 0);
  }
  if (answer.json.contains("shadow_age_ns")) {
    snapshot.shadow_age_ns = Field<std::int64_t>(answer.json, "shadow_age_ns", 0);
  }
  if (values) {
    snapshot.values = std::move(answer.fds[0]);
    snapshot.plan = std::move(answer.fds[1]);
  }
  return std::optional<ShardSnapshot>(std::move(snapshot));
}

Result<std::string> RendezvousClient::GetStatus(Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(JsonMessage answer, Ask(fd(), {{"get", "status"}}, {}, deadline));
  if (answer.fds.size() != 1) return Unexpected();
  return ReadConstantFile(answer.fds[0].get(), kMaxStatusBytes);
}

Result<std::uint32_t> RendezvousClient::SetMode(const ModeSetting& setting, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(JsonMessage answer,
                          Ask(fd(), {{"set_mode", setting.ToString()}}, {}, deadline));
  if (!answer.json.contains("number")) return Unexpected();
  return Field<std::uint32_t>(answer.json, "number", 0);
}

Status RendezvousClient::Stop(Deadline deadline) {
  return Ask(fd(), {{"stop", true}}, {}, deadline).status();
}

}  // namespace passel::shm

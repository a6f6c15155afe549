#include "shm/rendezvous_client.h"

#include <fmt/core.h>
#include <poll.h>

#include "base/memory_file.h"
#include "cluster/json_message.h"
#include "cluster/patience.h"
#include "shm/layout.h"

namespace passel::shm {
namespace {

constexpr std::size_t kMaxStatusBytes = std::size_t{16} << 20;

Status SendRequest(int fd, std::string_view name, Json arguments, std::span<const int> fds,
                   Deadline deadline) {
  arguments["ask"] = name;
  return SendJson(fd, arguments, fds, deadline);
}

Result<JsonMessage> ReceiveAnswer(int fd, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(JsonMessage answer, ReceiveJson(fd, deadline));
  PASSEL_RETURN_IF_ERROR(ErrorOf(answer.json));
  return answer;
}

Result<JsonMessage> Ask(int fd, std::string_view name, Json arguments, std::span<const int> fds,
                        Deadline deadline) {
  PASSEL_RETURN_IF_ERROR(SendRequest(fd, name, std::move(arguments), fds, deadline));
  return ReceiveAnswer(fd, deadline);
}

Status Unexpected() { return DataLoss("the other task answered something unexpected"); }

// That of an answer that may have one.
std::optional<FileDescriptor> TakeFd(JsonMessage& answer) {
  if (answer.fds.empty()) return std::nullopt;
  return std::move(answer.fds[0]);
}

}  // namespace

RendezvousClient::RendezvousClient(EndpointConnection server, const Introduction& me)
    : server_(std::move(server)),
      my_role_(me.role),
      handshake_(me, {kLayoutVersion, StructureHash()}) {}

Result<RendezvousClient> RendezvousClient::Connect(const Introduction& me, Role role, int index,
                                                   const JobToken* token, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(RendezvousClient client, Begin(me, role, index, deadline));
  PASSEL_RETURN_IF_ERROR(client.Finish(token, deadline));
  return client;
}

Result<RendezvousClient> RendezvousClient::Control(const std::string& job_id, int ps,
                                                   Deadline deadline) {
  return Connect({.job_id = job_id, .role = Role::kControl}, Role::kPs, ps, nullptr, deadline);
}

Result<RendezvousClient> RendezvousClient::Begin(const Introduction& me, Role role, int index,
                                                 Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(EndpointConnection server,
                          ConnectToEndpoint(me.job_id, role, index, deadline));
  if (me.role == Role::kControl) PASSEL_RETURN_IF_ERROR(CheckUidIsEnough());
  RendezvousClient client(std::move(server), me);
  client.server_name_ = fmt::format("{}/{} of job {} (process {})", RoleName(role), index,
                                    me.job_id, client.server_pid());
  PASSEL_RETURN_IF_ERROR(SendText(client.fd(), client.handshake_.hello(), {}, deadline));
  return client;
}

bool RendezvousClient::Readable() const {
  pollfd entry{fd(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

Status RendezvousClient::Finish(const JobToken* token, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(const JsonMessage challenge, ReceiveAnswer(fd(), deadline));
  if (my_role_ == Role::kControl) return {};
  PASSEL_CHECK(token != nullptr, "only control connections need no token");
  PASSEL_ASSIGN_OR_RETURN(const std::string proof,
                          handshake_.Answer(challenge.text, *token, server_name_));
  PASSEL_RETURN_IF_ERROR(SendText(fd(), proof, {}, deadline));
  return ReceiveAnswer(fd(), deadline).status();
}

Result<std::optional<FileDescriptor>> RendezvousClient::GetArena(
    bool wait, Deadline deadline, bool* need_plan, std::function<void()> still_waiting) {
  PASSEL_RETURN_IF_ERROR(SendRequest(fd(), "arena", {{"wait", wait}}, {}, deadline));
  Patience patience(deadline, std::move(still_waiting));
  Result<JsonMessage> answer = ReceiveJson(fd(), deadline.Sooner(Patience::kTellEvery));
  while (answer.status().code() == Code::kDeadlineExceeded && patience.Again({})) {
    answer = ReceiveJson(fd(), deadline.Sooner(Patience::kTellEvery));
  }
  if (!answer.ok()) return answer.status();
  PASSEL_RETURN_IF_ERROR(ErrorOf(answer->json));
  PASSEL_ASSIGN_OR_RETURN(const bool needed, FieldOr(answer->json, "need_plan", false));
  if (need_plan != nullptr) *need_plan = needed;
  return TakeFd(*answer);
}

Result<FileDescriptor> RendezvousClient::ProposePlan(const std::string& plan_json,
                                                     Deadline deadline) {
  return SendPlan("plan", plan_json, deadline);
}

Result<FileDescriptor> RendezvousClient::Renew(const std::string& plan_json, Deadline deadline) {
  return SendPlan("renew", plan_json, deadline);
}

Result<FileDescriptor> RendezvousClient::SendPlan(std::string_view request,
                                                  const std::string& plan_json, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(FileDescriptor text,
                          CreateConstantFile("passel.plan", plan_json.data(), plan_json.size()));
  const int fds[] = {text.get()};
  PASSEL_ASSIGN_OR_RETURN(JsonMessage answer, Ask(fd(), request, {}, fds, deadline));
  if (answer.fds.size() != 1) return Unexpected();
  return std::move(answer.fds[0]);
}

Status RendezvousClient::GiveUp(const std::string& why, Deadline deadline) {
  return Ask(fd(), "give_up", {{"why", why}}, {}, deadline).status();
}

Status RendezvousClient::OfferData(const std::string& key, int data_fd, Deadline deadline) {
  const int fds[] = {data_fd};
  return Ask(fd(), "offer_data", {{"key", key}}, fds, deadline).status();
}

Result<std::optional<FileDescriptor>> RendezvousClient::GetData(const std::string& key,
                                                                Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(JsonMessage answer, Ask(fd(), "get_data", {{"key", key}}, {}, deadline));
  return TakeFd(answer);
}

Status RendezvousClient::TellData(const Json& about, Deadline deadline) {
  return Ask(fd(), "tell_data", {{"about", about}}, {}, deadline).status();
}

Status RendezvousClient::TellScore(double accuracy, std::int64_t global_step, Deadline deadline) {
  Json score = Json::MakeObject();
  score["accuracy"] = accuracy;
  score["global_step"] = global_step;
  return Ask(fd(), "tell_score", {{"score", score}}, {}, deadline).status();
}

Result<Json> RendezvousClient::SayHere(Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(const JsonMessage answer, Ask(fd(), "here", {}, {}, deadline));
  return FieldOr(answer.json, "data", Json());
}

Status RendezvousClient::SayKept(Deadline deadline) {
  return Ask(fd(), "kept", {}, {}, deadline).status();
}

Result<ShardSnapshot> RendezvousClient::GetSnapshot(bool values, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(JsonMessage answer,
                          Ask(fd(), "snapshot", {{"values", values}}, {}, deadline));
  ShardSnapshot snapshot;
  JsonReader members = ReadMessage(answer.json);
  members.IfAny("chief", snapshot.chief);
  members.IfAny("snapshot", snapshot.there);
  members.IfAny("global_step", snapshot.global_step);
  members.IfAny("last_global_step", snapshot.last_global_step);
  members.IfAny("rounds", snapshot.rounds);
  members.IfAny("exact_round", snapshot.exact_round);
  members.IfAny("shadow_age_ns", snapshot.shadow_age_ns);
  PASSEL_RETURN_IF_ERROR(AsDataLoss(members.status()));
  if (!snapshot.there) return snapshot;
  if (answer.fds.size() != (values ? 2u : 0u)) return Unexpected();
  if (const Json* const data = answer.json.Find("data")) snapshot.data = data->Write();
  if (values) {
    snapshot.values = std::move(answer.fds[0]);
    snapshot.plan = std::move(answer.fds[1]);
  }
  return snapshot;
}

Result<FileDescriptor> RendezvousClient::GetPlan(Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(JsonMessage answer, Ask(fd(), "get_plan", {}, {}, deadline));
  return TakeFd(answer).value_or(FileDescriptor());
}

Result<std::int64_t> RendezvousClient::Meet(Deadline deadline) {
  const Result<JsonMessage> answer = Ask(fd(), "meet", {}, {}, deadline);
  if (answer.status().code() == Code::kDeadlineExceeded) {
    return DeadlineExceeded(
        fmt::format("the workers have not met in time, as {} says: give them more, or look "
                    "(passel ctl status) who is in a long step",
                    server_name_));
  }
  if (!answer.ok()) return answer.status();
  return Field<std::int64_t>(answer->json, "global_step");
}

Result<MeetingCost> RendezvousClient::GoOn(Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(const JsonMessage answer, Ask(fd(), "go_on", {}, {}, deadline));
  PASSEL_ASSIGN_OR_RETURN(const auto gathering, Field<std::int64_t>(answer.json, "gathering_ns"));
  PASSEL_ASSIGN_OR_RETURN(const auto held, Field<std::int64_t>(answer.json, "held_ns"));
  return MeetingCost{std::chrono::nanoseconds(gathering), std::chrono::nanoseconds(held)};
}

Status RendezvousClient::BeginCopy(int memory, Deadline deadline) {
  const int fds[] = {memory};
  return SendRequest(fd(), "snapshot", {{"values", true}}, fds, deadline);
}

Status RendezvousClient::CopyIsMade(Deadline deadline) {
  return ReceiveAnswer(fd(), deadline).status();
}

Result<std::string> RendezvousClient::GetStatus(Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(JsonMessage answer, Ask(fd(), "status", {}, {}, deadline));
  if (answer.fds.size() != 1) return Unexpected();
  return ReadConstantFile(answer.fds[0].get(), kMaxStatusBytes);
}

Result<std::uint32_t> RendezvousClient::SetMode(const ModeSetting& setting, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(JsonMessage answer,
                          Ask(fd(), "set_mode", {{"mode", setting.ToString()}}, {}, deadline));
  return Field<std::uint32_t>(answer.json, "number");
}

Result<std::uint32_t> RendezvousClient::Scale(std::int64_t workers, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(JsonMessage answer,
                          Ask(fd(), "scale", {{"workers", workers}}, {}, deadline));
  return Field<std::uint32_t>(answer.json, "number");
}

Status RendezvousClient::Stop(Deadline deadline, const std::string& failure) {
  return Ask(fd(), "stop", {{"failure", failure}}, {}, deadline).status();
}

}  // namespace passel::shm

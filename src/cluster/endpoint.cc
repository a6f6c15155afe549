#include "cluster/endpoint.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>

#include "base/namespaces.h"
#include "base/unix_socket.h"

namespace passel {

std::string EndpointName(const std::string& job_id, Role role, int index) {
  return fmt::format("passel.{}.{}.{}.{}", ::getuid(), job_id, RoleName(role), index);
}

Status CheckUidIsEnough() {
  if (UidMeansOneUser(::getuid())) return {};
  return PermissionDenied(fmt::format(
      "user {} stands here for every user without a number in this user namespace, so that control "
      "without the job token is refused: run in a namespace that maps the user (unshare "
      "--map-root-user)",
      ::getuid()));
}

Result<FileDescriptor> Listen(const std::string& job_id, Role role, int index, std::string task) {
  const std::string name = EndpointName(job_id, role, index);
  Result<FileDescriptor> listening = ListenAbstract(name);
  if (listening.status().code() != Code::kAlreadyExists) return listening;
  if (task.empty()) task = fmt::format("{}/{}", RoleName(role), index);
  const Result<EndpointConnection> holder =
      ConnectToEndpoint(job_id, role, index, Deadline::After(std::chrono::milliseconds(100)));
  if (holder.status().code() == Code::kPermissionDenied) return holder.status();
  return AlreadyExists(fmt::format(
      "{} of job {} is running already on this host{}: stop it first (passel ctl stop {}), or use "
      "another --job_id{}",
      task, job_id, holder.ok() ? fmt::format(" as process {}", holder->pid) : "", job_id,
      task.starts_with("worker/") ? " or --task_index" : ""));
}

Result<EndpointConnection> ConnectToEndpoint(const std::string& job_id, Role role, int index,
                                             Deadline deadline) {
  const std::string name = EndpointName(job_id, role, index);
  PASSEL_ASSIGN_OR_RETURN(FileDescriptor socket, ConnectAbstract(name, deadline));
  PASSEL_ASSIGN_OR_RETURN(const PeerCredentials server, GetPeerCredentials(socket.get()));
  if (server.uid != ::getuid()) {
    return PermissionDenied(
        fmt::format("the socket @{} is held by process {} of user {}, not by user {}: it is not "
                    "trusted; use another --job_id",
                    name, server.pid, server.uid, ::getuid()));
  }
  return EndpointConnection{std::move(socket), server.pid};
}

Result<std::vector<FoundEndpoint>> FindEndpoints() {
  std::ifstream table("/proc/net/unix");
  if (!table) return Internal("cannot read /proc/net/unix to find the running jobs");
  const std::string prefix = fmt::format("@passel.{}.", ::getuid());
  std::set<std::string> seen;
  std::vector<FoundEndpoint> found;
  for (std::string line; std::getline(table, line);) {
    const std::size_t at = line.find(prefix);
    if (at == std::string::npos) continue;
    // Connections carry the name of the listener too.
    const std::string name = line.substr(at + prefix.size());
    if (!seen.insert(name).second) continue;
    const std::size_t last = name.rfind('.');
    const std::size_t middle =
        last == std::string::npos || last == 0 ? std::string::npos : name.rfind('.', last - 1);
    if (middle == std::string::npos || middle == 0) continue;
    FoundEndpoint endpoint;
    endpoint.job_id = name.substr(0, middle);
    const auto role = ParseRole(std::string_view(name).substr(middle + 1, last - middle - 1));
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + last + 1, end, endpoint.index);
    if (!role || error != std::errc() || stop != end) continue;
    endpoint.role = *role;
    found.push_back(std::move(endpoint));
  }
  return found;
}

Result<FileDescriptor> ReservePlace(const std::string& job_id, int worker) {
  // FindEndpoints() does not take that for a worker.
  return ListenAbstract(EndpointName(job_id, Role::kWorker, worker) + ".place");
}

bool MayListen(const std::string& job_id, Role role, int index) {
  const Result<std::vector<FoundEndpoint>> endpoints = FindEndpoints();
  return !endpoints.ok() || std::ranges::any_of(*endpoints, [&](const FoundEndpoint& e) {
    return e.job_id == job_id && e.role == role && e.index == index;
  });
}

}  // namespace passel

#include "cluster/cluster_spec.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "cluster/text.h"

namespace passel {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// Whether a network interface of this machine has the address. Without interfaces to ask: no.
bool IsInterfaceAddress(int family, const void* address, std::size_t bytes) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  bool found = false;
  for (const ifaddrs* one = all; one != nullptr && !found; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
    const void* const own =
        family == AF_INET
            ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(one->ifa_addr)->sin_addr)
            : &reinterpret_cast<sockaddr_in6*>(one->ifa_addr)->sin6_addr;
    found = std::memcmp(own, address, bytes) == 0;
  }
  freeifaddrs(all);
  return found;
}

/// The canonical form of an address of family AF_INET or AF_INET6.
std::optional<std::string> CanonicalAddress(int family, const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> address;
  std::array<char, INET6_ADDRSTRLEN> canonical;
  if (inet_pton(family, text.c_str(), address.data()) != 1) return std::nullopt;
  if (!inet_ntop(family, address.data(), canonical.data(), canonical.size())) return std::nullopt;
  return std::string(canonical.data());
}

bool IsHostName(std::string_view host) {
  return host.size() <= 253 && (IsLetter(host[0]) || IsDigit(host[0]) || host[0] == '_') &&
         host.find("..") == std::string_view::npos &&
         std::all_of(host.begin(), host.end(), [](char c) {
           return IsLetter(c) || IsDigit(c) || c == '.' || c == '-' || c == '_';
         });
}

Status JobNameProblem(std::string_view job) {
  return InvalidArgument(fmt::format(
      "{} is not a job name: use a letter, then at most 31 letters, digits and underscores",
      Quoted(job)));
}

}  // namespace

std::string HostPort::ToString() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<HostPort> ParseHostPort(std::string_view text) {
  if (text.empty()) return InvalidArgument("an address is empty: write host:port");
  const std::size_t colon = text.rfind(':');
  const std::string_view host = text.substr(0, std::min(colon, text.size()));
  const std::optional<int> port =
      colon == std::string_view::npos ? std::nullopt : ParseDecimal(text.substr(colon + 1), 65535);
  if (!port || *port == 0) {
    return InvalidArgument(
        fmt::format("Could not parse port for local server from {}: write host:port with a port "
                    "of 1 to 65535",
                    Quoted(text)));
  }
  HostPort result;
  result.port = static_cast<std::uint16_t>(*port);
  const Status bad_host =
      InvalidArgument(fmt::format("the host of address {} is neither a name of letters, digits, "
                                  "'.', '-' and '_', nor an IPv4 address, nor an IPv6 address in "
                                  "brackets: correct it",
                                  Quoted(text)));
  if (host.empty() || host.find('\0') != std::string_view::npos) return bad_host;
  if (host.front() == '[') {
    if (host.back() != ']' || host.size() < 4) return bad_host;
    const auto address = CanonicalAddress(AF_INET6, std::string(host.substr(1, host.size() - 2)));
    if (!address) return bad_host;
    result.host = *address;
    return result;
  }
  if (!IsHostName(host)) return bad_host;
  // Digits and dots alone are meant as an IPv4 address: 10.0.0.256 is a mistake, not a name.
  if (std::all_of(host.begin(), host.end(), [](char c) { return IsDigit(c) || c == '.'; })) {
    const auto address = CanonicalAddress(AF_INET, std::string(host));
    if (!address) return bad_host;
    result.host = *address;
    return result;
  }
  result.host = Lower(host);
  return result;
}

Result<std::vector<HostPort>> ParseHostList(std::string_view text) {
  std::vector<HostPort> hosts;
  for (std::size_t start = 0;;) {
    const std::size_t comma = text.find(',', start);
    const std::string_view element = text.substr(
        start, comma == std::string_view::npos ? std::string_view::npos : comma - start);
    if (element.empty()) {
      return InvalidArgument(
          fmt::format("the {} host of the list {} is empty: write host:port,host:port",
                      Ordinal(hosts.size() + 1), Quoted(text)));
    }
    PASSEL_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(element));
    hosts.push_back(std::move(address));
    if (comma == std::string_view::npos) return hosts;
    start = comma + 1;
  }
}

Result<ClusterSpec> ClusterSpec::FromHostLists(std::string_view ps_hosts,
                                               std::string_view worker_hosts) {
  ClusterSpec spec;
  const std::pair<std::string_view, std::string_view> lists[] = {{"ps", ps_hosts},
                                                                 {"worker", worker_hosts}};
  for (const auto& [job, text] : lists) {
    if (text.empty()) {
      return InvalidArgument(fmt::format("Must specify an explicit `{}_hosts`", job));
    }
    Result<std::vector<HostPort>> hosts = ParseHostList(text);
    if (!hosts.ok()) return hosts.status();
    int index = 0;
    for (HostPort& address : *hosts) {
      PASSEL_RETURN_IF_ERROR(spec.Add(job, index++, std::move(address)));
    }
  }
  return spec;
}

Status ClusterSpec::Add(std::string_view job, int index, HostPort address) {
  if (!IsJobName(job)) return JobNameProblem(job);
  if (index < 0 || index > kMaxTaskIndex) {
    return InvalidArgument(fmt::format("task index {} of job \"{}\" is not within 0 to {}", index,
                                       job, kMaxTaskIndex));
  }
  if (const auto tasks = jobs_.find(job); tasks != jobs_.end()) {
    if (const auto other = tasks->second.find(index); other != tasks->second.end()) {
      return InvalidArgument(
          fmt::format("JobDef for job \"{}\" specified two addresses for task \"{}\": {} and {}",
                      job, index, other->second.ToString(), address.ToString()));
    }
  }
  const TaskId task{std::string(job), index};
  if (const auto [owner, is_new] = owners_.emplace(address, task); !is_new) {
    return InvalidArgument(
        fmt::format("address {} belongs to both {} and {}: give each task its own",
                    address.ToString(), owner->second.ToString(), task.ToString()));
  }
  jobs_[task.job].emplace(index, std::move(address));
  return {};
}

int ClusterSpec::num_tasks(std::string_view job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? 0 : static_cast<int>(found->second.size());
}

Result<HostPort> ClusterSpec::Address(const TaskId& task) const {
  const auto job = jobs_.find(task.job);
  if (job == jobs_.end()) {
    std::string known;
    for (const auto& [name, tasks] : jobs_) known += (known.empty() ? "" : ", ") + name;
    return InvalidArgument(fmt::format("Job {} was not defined in cluster: it has {}",
                                       Quoted(task.job), known.empty() ? "no jobs" : known));
  }
  const Tasks& tasks = job->second;
  if (const auto found = tasks.find(task.index); found != tasks.end()) return found->second;
  const bool dense = tasks.rbegin()->first == static_cast<int>(tasks.size()) - 1;
  return InvalidArgument(fmt::format(
      "Task {0} was not defined in job \"{1}\": task index {0} is out of range: job \"{1}\" has "
      "{2} task{3}{4}",
      task.index, task.job, tasks.size(), tasks.size() == 1 ? "" : "s",
      dense ? "" : fmt::format(", with gaps, the last is {}", tasks.rbegin()->first)));
}

Status ClusterSpec::Validate() const {
  for (const auto& [job, tasks] : jobs_) {
    if (job != "ps" && job != "worker" && job != "chief" && job != "master" && job != "evaluator") {
      return InvalidArgument(
          fmt::format("Unrecognized task_type: \"{}\": use chief, evaluator, ps or worker", job));
    }
  }
  if (num_tasks("ps") < 1) return InvalidArgument("There must be at least one ps.");
  if (num_tasks("worker") < 1) return InvalidArgument("There must be at least one worker.");
  PASSEL_RETURN_IF_ERROR(CheckSingleTasks());
  for (const auto& [job, tasks] : jobs_) {
    const int last = tasks.rbegin()->first;
    if (last < static_cast<int>(tasks.size())) continue;
    return InvalidArgument(
        fmt::format("job \"{}\" has {} task{} but the last has index {}: number them from 0 to {}",
                    job, tasks.size(), tasks.size() == 1 ? "" : "s", last, tasks.size() - 1));
  }
  return {};
}

Status ClusterSpec::CheckSingleTasks() const {
  if (const int chiefs = num_tasks("chief") + num_tasks("master"); chiefs > 1) {
    return InvalidArgument(fmt::format("the cluster has {} chiefs: name at most one", chiefs));
  }
  if (const int evaluators = num_tasks("evaluator"); evaluators > 1) {
    return InvalidArgument(
        fmt::format("the cluster has {} evaluators: name at most one", evaluators));
  }
  for (const std::string_view job : {"chief", "master", "evaluator"}) {
    const auto found = jobs_.find(job);
    if (found == jobs_.end() || found->second.contains(0)) continue;
    return InvalidArgument(fmt::format("the only {} has index {}: give it index 0", job,
                                       found->second.begin()->first));
  }
  return {};
}

bool ClusterSpec::dense() const {
  return std::all_of(jobs_.begin(), jobs_.end(), [](const auto& job) {
    return job.second.rbegin()->first < static_cast<int>(job.second.size());
  });
}

bool ClusterSpec::IsChief(const TaskId& task) const {
  if (task.index != 0) return false;
  if (task.job == "chief" || task.job == "master") return true;
  return task.job == "worker" && num_tasks("chief") + num_tasks("master") == 0;
}

std::string ClusterSpec::CanonicalText() const {
  std::string text;
  for (const auto& [job, tasks] : jobs_) {
    text += job + "{";
    bool first = true;
    for (const auto& [index, address] : tasks) {
      if (!std::exchange(first, false)) text += ',';
      text += fmt::format("{}={}", index, address.ToString());
    }
    text += '}';
  }
  return text;
}

std::uint64_t ClusterSpec::Hash() const {
  Fnv1a hash;
  for (const char c : "passel-cluster-1:" + CanonicalText()) {
    hash.AddByte(static_cast<std::uint8_t>(c));
  }
  return hash.value();
}

Result<TaskId> ResolveTask(const ClusterSpec& spec, std::string_view job_name,
                           std::optional<int> task_index) {
  if (job_name.empty()) return InvalidArgument("Must specify an explicit `job_name`");
  if (!task_index) return InvalidArgument("Must specify an explicit `task_index`");
  TaskId task{std::string(job_name), *task_index};
  if (const auto address = spec.Address(task); !address.ok()) return address.status();
  return task;
}

Status ValidateJobId(std::string_view id) {
  const bool good = !id.empty() && id.size() <= 48 && (IsLetter(id[0]) || IsDigit(id[0])) &&
                    std::all_of(id.begin(), id.end(), [](char c) {
                      return IsLetter(c) || IsDigit(c) || c == '.' || c == '_' || c == '-';
                    });
  if (good) return {};
  return InvalidArgument(
      fmt::format("job id {} of {} bytes is not allowed: use a letter or digit, then at most 47 "
                  "letters, digits, '.', '_' and '-'",
                  Quoted(id), id.size()));
}

std::string JobIdFromSpec(const ClusterSpec& spec) {
  const Result<HostPort> first = spec.Address({"ps", 0});
  if (!first.ok()) return fmt::format("job-{:016x}", spec.Hash());
  Fnv1a hash;
  for (const char c : "passel-job-1:" + first->ToString()) {
    hash.AddByte(static_cast<std::uint8_t>(c));
  }
  return fmt::format("job-{:016x}", hash.value());
}

bool IsLocalHost(std::string_view host) {
  const std::string name = Lower(host);
  if (name.empty() || name.find('\0') != std::string::npos) return false;
  if (name == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, name.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127 || IsInterfaceAddress(AF_INET, &v4, sizeof v4);
  }
  in6_addr v6;
  if (inet_pton(AF_INET6, name.c_str(), &v6) == 1) {
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127) ||
           IsInterfaceAddress(AF_INET6, &v6, sizeof v6);
  }
  std::array<char, HOST_NAME_MAX + 1> own{};
  // One byte is kept back: a cut-off name need not end with a NUL.
  if (gethostname(own.data(), own.size() - 1) != 0) return false;
  return own[0] != '\0' && name == Lower(own.data());
}

}  // namespace passel

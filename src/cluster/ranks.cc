#include "cluster/ranks.h"

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <utility>

#include "cluster/cluster_spec.h"
#include "cluster/text.h"

namespace passel {
namespace {

constexpr int kMaxPort = 65535;
constexpr int kMaxWorldSize = 1 << 15;  // more than a job takes; each needs a port of its own

using Environment = std::function<std::optional<std::string>(const char* name)>;

Result<int> Number(const char* name, const std::string& text, int least, int most) {
  const std::optional<int> number = ParseDecimal(text, most);
  if (number && *number >= least) return *number;
  return InvalidArgument(
      fmt::format("{} is {}, but it must be a number from {} to {}: correct or unset it", name,
                  Quoted(text), least, most));
}

}  // namespace

Result<std::optional<Ranks>> ReadRanks(const Environment& environment, std::string* missing) {
  constexpr std::array<const char*, 4> kNames{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  std::array<std::optional<std::string>, kNames.size()> values;
  std::string present;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    values[i] = environment(kNames[i]);
    std::string& list = values[i] ? present : *missing;
    list += (list.empty() ? "" : ", ") + std::string(kNames[i]);
  }
  if (!missing->empty()) {
    // MASTER_ADDR and MASTER_PORT alone, or one name alone, are for somebody else.
    if (!values[0] || !values[1]) missing->clear();
    return std::optional<Ranks>();
  }
  Ranks ranks;
  PASSEL_ASSIGN_OR_RETURN(ranks.world_size, Number("WORLD_SIZE", *values[1], 1, kMaxWorldSize));
  PASSEL_ASSIGN_OR_RETURN(ranks.rank, Number("RANK", *values[0], 0, ranks.world_size - 1));
  ranks.local_rank = ranks.rank;
  if (const auto local = environment("LOCAL_RANK")) {
    PASSEL_ASSIGN_OR_RETURN(ranks.local_rank,
                            Number("LOCAL_RANK", *local, 0, ranks.world_size - 1));
  }
  if (const auto size = environment("LOCAL_WORLD_SIZE")) {
    PASSEL_ASSIGN_OR_RETURN(const int here, Number("LOCAL_WORLD_SIZE", *size, 1, ranks.world_size));
    if (here != ranks.world_size) {
      return InvalidArgument(
          fmt::format("WORLD_SIZE is {}, but LOCAL_WORLD_SIZE, the processes of this host, {}: "
                      "this build joins processes of one host only, so start all of them here "
                      "(torchrun --nnodes 1)",
                      ranks.world_size, here));
    }
  }
  PASSEL_ASSIGN_OR_RETURN(const int port, Number("MASTER_PORT", *values[3], 1, kMaxPort));
  // An IPv6 address comes without brackets, which ToString() adds.
  const HostPort asked{*values[2], static_cast<std::uint16_t>(port)};
  PASSEL_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(asked.ToString()));
  ranks.ps_hosts = address.ToString();
  for (int i = 0; i < ranks.world_size; ++i) {
    address.port = static_cast<std::uint16_t>((port + i) % kMaxPort + 1);
    ranks.worker_hosts += (i > 0 ? "," : "") + address.ToString();
  }
  return std::optional<Ranks>(std::move(ranks));
}

}  // namespace passel

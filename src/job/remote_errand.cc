#include "job/remote_errand.h"

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "cluster/json_message.h"

namespace passel::job {

Status SendErrand(fabric::Pipe& pipe, Json json, std::string_view bytes) {
  json["bytes"] = bytes.size();
  const std::string text = json.Write();
  std::vector<float> bulk((bytes.size() + sizeof(float) - 1) / sizeof(float));
  if (!bytes.empty()) std::memcpy(bulk.data(), bytes.data(), bytes.size());
  return pipe.Send({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, bulk);
}

Status SendErrand(fabric::Pipe& pipe, Errand errand) {
  if (errand.floats.empty()) return SendErrand(pipe, std::move(errand.json), errand.bytes);
  errand.json["floats"] = errand.floats.size();
  const std::string text = errand.json.Write();
  return pipe.Send({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()},
                   errand.floats);
}

Result<Errand> ReceiveErrand(fabric::Pipe& pipe, std::size_t most, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(const fabric::Arrival arrival, pipe.Receive(deadline));
  Errand errand;
  PASSEL_ASSIGN_OR_RETURN(
      errand.json,
      ParseMessage({reinterpret_cast<const char*>(arrival.header.data()), arrival.header.size()}));
  PASSEL_ASSIGN_OR_RETURN(const auto bytes, FieldOr<std::uint64_t>(errand.json, "bytes", 0));
  PASSEL_ASSIGN_OR_RETURN(const auto floats, FieldOr<std::uint64_t>(errand.json, "floats", 0));
  if (floats > 0 && floats == arrival.bulk_floats && floats <= most / sizeof(float)) {
    errand.floats.resize(floats);
    PASSEL_RETURN_IF_ERROR(pipe.ReadBulk(errand.floats));
    return errand;
  }
  if (bytes > most || (bytes + sizeof(float) - 1) / sizeof(float) != arrival.bulk_floats) {
    return DataLoss("a question about a job has another size than it says");
  }
  std::vector<float> bulk(arrival.bulk_floats);
  PASSEL_RETURN_IF_ERROR(pipe.ReadBulk(bulk));
  errand.bytes.resize(bytes);
  if (bytes > 0) std::memcpy(errand.bytes.data(), bulk.data(), bytes);
  return errand;
}

}  // namespace passel::job

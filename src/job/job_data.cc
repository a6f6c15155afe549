#include "job/job_data.h"

#include "base/json_fields.h"

namespace passel::job {

void JsonMembers(auto& members, JsonPart<JobData> auto& data) {
  members("directory", data.directory);
  members("key", data.key);
  members("fake", data.fake);
  members("csv_train_limit", data.csv_train_limit);
  members("csv_test_limit", data.csv_test_limit);
  members("validation_size", data.split.validation_size);
  members("train_examples", data.split.train_examples);
  members.IfAny("crc32", data.crc32);
}

namespace {

// What was told first says also what others told.
struct ToldData {
  JobData first;
  std::vector<JobData> also;
};
void JsonMembers(auto& members, JsonPart<ToldData> auto& told) {
  JsonMembers(members, told.first);
  members.IfAny("also", told.also);
}

}  // namespace

std::string ToJson(const JobData& data) { return JsonOf(data).Write(); }

std::vector<JobData> JobDataFromJson(const std::string& text) {
  constexpr int kDepth = 3;  // data > also > what one of the others trains on
  const Result<Json> json = ParseJson("what a job trains on", text, kDepth);
  ToldData told;
  if (!json.ok() || !ReadJson("what a job trains on", *json, &told).ok()) return {};
  told.also.insert(told.also.begin(), std::move(told.first));
  return std::move(told.also);
}

}  // namespace passel::job

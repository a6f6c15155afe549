#include "job/job_data.h"

#include <nlohmann/json.hpp>

namespace passel::job {
namespace {

using Json = nlohmann::json;

std::optional<JobData> FromObject(const Json& json) {
  JobData data;
  try {
    json.at("directory").get_to(data.directory);
    json.at("key").get_to(data.key);
    json.at("fake").get_to(data.fake);
    json.at("csv_train_limit").get_to(data.csv_train_limit);
    json.at("csv_test_limit").get_to(data.csv_test_limit);
    json.at("validation_size").get_to(data.split.validation_size);
    json.at("train_examples").get_to(data.split.train_examples);
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  return data;
}

}  // namespace

std::string ToJson(const JobData& data) {
  const Json json = {{"directory", data.directory},
                     {"key", data.key},
                     {"fake", data.fake},
                     {"csv_train_limit", data.csv_train_limit},
                     {"csv_test_limit", data.csv_test_limit},
                     {"validation_size", data.split.validation_size},
                     {"train_examples", data.split.train_examples}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<JobData> JobDataFromJson(const std::string& text) {
  std::vector<JobData> all;
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return all;
  std::vector<Json> told = {json};
  if (const auto also = json.find("also"); also != json.end() && also->is_array()) {
    told.insert(told.end(), also->begin(), also->end());
  }
  for (const Json& one : told) {
    std::optional<JobData> data = FromObject(one);
    if (!data) return {};
    all.push_back(std::move(*data));
  }
  return all;
}

}  // namespace passel::job

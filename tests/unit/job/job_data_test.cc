// What a job says of its data: what is written is read back, and nothing else is.

#include "job/job_data.h"

#include <gtest/gtest.h>

namespace passel::job {
namespace {

const JobData kData = {"/data", "a key", false, 7, 8, {100, 2000}};

TEST(JobDataTextTest, IsReadBackWithWhatOthersSay) {
  std::string text = ToJson(kData);
  ASSERT_EQ(JobDataFromJson(text).size(), 1u);
  JobData other = kData;
  other.directory = "/other";
  text.pop_back();
  const std::vector<JobData> all = JobDataFromJson(text + ",\"also\":[" + ToJson(other) + "]}");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].directory, "/data");
  EXPECT_EQ(all[0].split, kData.split);
  EXPECT_EQ(all[0].csv_test_limit, 8u);
  EXPECT_EQ(all[1].directory, "/other");
}

TEST(JobDataTextTest, AnythingElseSaysNothing) {
  const std::string good = ToJson(kData);
  const auto with = [&](const std::string& more) {
    return good.substr(0, good.size() - 1) + "," + more + "}";
  };
  for (const std::string& text : {std::string(), std::string("null"), std::string("{}"), good + "x",
                                  with(R"("fake":true)"), with(R"("more":1)"), with(R"("also":{})"),
                                  with(R"("also":[{}])"), std::string(R"({"directory":7})")}) {
    EXPECT_TRUE(JobDataFromJson(text).empty()) << text;
  }
}

}  // namespace
}  // namespace passel::job

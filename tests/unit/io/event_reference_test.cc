// Our event files in TensorBoard's own reader. Needs a Python that has the module tensorboard:
// support/reference_script.h.

#include <gtest/gtest.h>

#include <cmath>

#include "io/event_file.h"
#include "support/reference_script.h"
#include "support/temp_dir.h"

namespace passel {
namespace {

int RunTensorBoard(const std::string& arguments, std::string* output) {
  return test::RunReference(PASSEL_TEST_DIR "/event_reference.py", arguments, output);
}

TEST(EventReferenceTest, TensorBoardReadsEverythingAndEveryCutFile) {
  std::string output;
  const int status = RunTensorBoard("check", &output);
  if (test::CannotRun(status)) {
    GTEST_SKIP() << "no Python with tensorboard (set PASSEL_TEST_PYTHON): " << output;
  }
  ASSERT_EQ(status, 0) << output;
  const test::TempDir dir;
  const double now = 1700000000.75;
  auto first = EventFile::Create(dir.path(), now).value();
  first->Add({now, 0, SessionLog{SessionLog::Status::kStart}});
  first->Add({now, 0,
              Graph{{"hid_w", "VariableV2", "/job:ps/task:1", {}, {{784, 100}}},
                    {"hid/MatMul", "MatMul", "/job:worker", {"hid_w"}, {{-1, 100}}}}});
  first->Add({now, 0, Summary{{"model", std::string("| a |\n|---|\n| é |")}}});
  first->Add(
      {now, 1,
       Summary{{"loss", 0.5}, {"rate/sec", 1e3}, {"hid_w", std::vector<float>{1, 1, -2, 0}}}});
  first->Add({now, 2, Summary{{"loss", 7.0}}});
  first->Add({now, 9, Summary{{"loss", 7.0}}});
  first->Add({now, 0, SessionLog{SessionLog::Status::kStop}});
  first->Close();
  auto second = EventFile::Create(dir.path(), now).value();
  second->Add({now, 2, SessionLog{SessionLog::Status::kStart}});
  second->Add({now, 2, Summary{{"loss", -0.25}}});
  second->Add({now, 3, Summary{{"loss", 8.0}}});
  second->Add({now, 3, SessionLog{SessionLog::Status::kCheckpoint, "model.ckpt-3"}});
  second->Add({now, 4, Summary{{"loss", std::nan("")}}});
  second->Close();
  EXPECT_EQ(RunTensorBoard("verify " + dir.path(), &output), 0) << output;
  EXPECT_EQ(RunTensorBoard("cut " + second->path(), &output), 0) << output;
}

}  // namespace
}  // namespace passel

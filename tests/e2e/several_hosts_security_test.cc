// What a job on two hosts lets out, and what a crowd of strangers at its door costs.

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/tcp_socket.h"
#include "e2e/hosts_job.h"
#include "support/enter_host.h"
#include "support/secrets.h"

namespace passel::testing {
namespace {

using SlowSeveralHostsTest = SeveralHostsTest;

TEST_F(SeveralHostsTest, TheTokenIsNowhereButInItsFile) {
  HostsJob job = Job(1, 2, {"worker/1"}, With(kEndless, {"--log_level=debug"}));
  const auto file = [&](const char* name) { return job.sandbox().dir().File(name); };
  job.Start("ps/0", {"--checkpoint_dir=" + file("checkpoints"), "--report=" + file("report")});
  ASSERT_TRUE(job["ps/0"].WaitFor(" is ready")) << job["ps/0"].Err();
  job.Start("worker/0", {"--checkpoint_dir=" + file("checkpoints"), "--save=" + file("model"),
                         "--logs_dir=" + file("logs"), "--summary_steps=1"});
  job.Start("worker/1");
  ASSERT_TRUE(job["worker/0"].WaitFor("saved checkpoint")) << job["worker/0"].Err();
  ASSERT_TRUE(job.sandbox().Advances(50)) << job["worker/1"].Err();
  const std::string token = ReadText(job.token());
  ASSERT_EQ(token.size(), 32u);
  std::map<std::string, std::string> seen;  // where: what
  for (const char* task : {"ps/0", "worker/0", "worker/1"}) {
    for (const char* what : {"cmdline", "environ"}) {
      seen[fmt::format("{} of {}", what, task)] =
          ReadText(fmt::format("/proc/{}/{}", job[task].pid(), what));
    }
  }
  if (::getuid() == 0) {  // who else can read the memory of other processes is not known
    for (const char* task : {"ps/0", "worker/0", "worker/1"}) {
      const Memory memory = ReadMemory(job[task].pid());
      EXPECT_FALSE(memory.dumped.empty());
      seen[fmt::format("core of {}", task)] = memory.dumped;
      EXPECT_NE(memory.kept_out.find(token), std::string::npos) << "where is it then?";
    }
  }
  seen["status"] = job.sandbox().Status().dump();
  job.Stop();
  job.ExpectEnd(130);
  for (const char* task : {"ps/0", "worker/0", "worker/1"}) {
    seen[fmt::format("log of {}", task)] = job[task].Err() + job[task].Out();
  }
  std::size_t files = 0;
  for (const std::string& name : job.sandbox().dir().List()) {
    const std::string path = job.sandbox().dir().File(name);
    if (path == job.token() || !std::filesystem::is_regular_file(path)) continue;
    seen[name] = ReadText(path);
    ++files;
  }
  EXPECT_GE(files, 4u) << "checkpoint, report, model, summaries";
  for (const auto& [where, what] : seen) {
    EXPECT_EQ(what.find(token), std::string::npos) << where;
    EXPECT_EQ(what.find(Hex(token)), std::string::npos) << where;
  }
}

// 200 connections that say nothing and 50 that say a byte now and then, made anew as soon as the ps
// ends them, from where the workers are: they train on as before. How fast is printed.
TEST_F(SlowSeveralHostsTest, ACrowdAtTheDoorKeepsNobodyFromTraining) {
  HostsJob job = Job(1, 2, {"worker/0", "worker/1"}, kEndless);
  job.StartAll();
  ASSERT_TRUE(job.sandbox().Advances(200)) << job["worker/0"].Err();
  const auto steps_in = [&](double seconds) {
    const std::int64_t before = job.sandbox().GlobalStep();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return job.sandbox().GlobalStep() - before;
  };
  const std::int64_t alone = steps_in(5);
  std::atomic<bool> stop{false};
  std::atomic<int> made{0};
  std::thread crowd([&] {
    EXPECT_TRUE(EnterHost(hosts_->other_host()));
    std::vector<FileDescriptor> strangers(250);
    const auto door = TcpAddress::FromNumbers(TwoHosts::kHere, 2222);
    ASSERT_TRUE(door.ok());
    while (!stop) {
      for (std::size_t i = 0; i < strangers.size() && !stop; ++i) {
        char byte = 'P';
        const bool gone =
            !strangers[i].valid() ||
            (i >= 200 && ::send(strangers[i].get(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) ||
            (i < 200 && ::recv(strangers[i].get(), &byte, 1, MSG_DONTWAIT) == 0);
        if (!gone) continue;
        auto another = ConnectTcp(*door, Deadline::After(std::chrono::milliseconds(200)));
        strangers[i] = another.ok() ? std::move(*another) : FileDescriptor();
        made += another.ok() ? 1 : 0;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  const std::int64_t crowded = steps_in(5);
  // Who is honest comes in, too.
  job.Kill("worker/1");
  job.Start("worker/1");
  EXPECT_TRUE(job["worker/1"].WaitFor("Session initialization complete", 30))
      << job["worker/1"].Err();
  stop = true;
  crowd.join();
  std::printf("%lld global steps in 5 s alone, %lld beside %d strangers\n",
              static_cast<long long>(alone), static_cast<long long>(crowded), made.load());
  EXPECT_GT(made, 250);
  EXPECT_GT(crowded, 0);
  job.Stop();
  job.ExpectEnd(130);
}

}  // namespace
}  // namespace passel::testing

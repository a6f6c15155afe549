// hosts_job.h - a job whose tasks are started by hand on two hosts (support/two_hosts.h): "here",
// where the test runs, and "there".

#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/program.h"
#include "support/two_hosts.h"

namespace passel::testing {

class HostsJob {
 public:
  /// Tasks by what is there: "ps/0", "worker/1". All others are here.
  HostsJob(TwoHosts& hosts, int ps, int workers, std::set<std::string> there,
           std::vector<std::string> flags)
      : hosts_(hosts),
        ps_(ps),
        workers_(workers),
        there_(std::move(there)),
        flags_(std::move(flags)),
        token_(sandbox_.dir().File("token")) {}

  Sandbox& sandbox() { return sandbox_; }
  Program& operator[](const std::string& task) { return tasks_.at(task); }
  const std::string& token() const { return token_; }
  const std::string& job_id() const { return sandbox_.job(); }

  /// The lists name that task so, at its own port, and all that start from now on look names up in
  /// AddressBook(), as if that were their /etc/hosts. REQUIRES: TwoHosts::HasAddressBooks().
  void Name(const std::string& task, const std::string& name) { names_[task] = name; }
  std::string AddressBook() { return sandbox_.dir().File("hosts"); }

  std::string HostList(const std::string& job, int count, int port) const {
    std::string list;
    for (int i = 0; i < count; ++i) {
      list += fmt::format("{}{}:{}", i == 0 ? "" : ",", AddressOf(fmt::format("{}/{}", job, i)),
                          port + i);
    }
    return list;
  }
  std::vector<std::string> Task(const std::string& task,
                                const std::vector<std::string>& more = {}) const {
    const std::size_t slash = task.find('/');
    std::vector<std::string> all = {"task",
                                    "--job_name=" + task.substr(0, slash),
                                    "--task_index=" + task.substr(slash + 1),
                                    "--ps_hosts=" + HostList("ps", ps_, 2222),
                                    "--worker_hosts=" + HostList("worker", workers_, 3222),
                                    "--job_id=" + sandbox_.job(),
                                    "--data_dir=" + Digits()};
    all = With(all, flags_);
    // What is given here replaces what was there.
    for (const std::string& flag : more) {
      const std::string name = flag.substr(0, flag.find('=')) + "=";
      std::erase_if(all, [&](const std::string& other) { return other.starts_with(name); });
    }
    return With(all, more);
  }
  /// Its next life, if it had one. Without a flag of its own it is given the token.
  Program& Start(const std::string& task, const std::vector<std::string>& more = {}) {
    return StartBare(task, With({"--token_file=" + token_}, more));
  }
  Program& StartBare(const std::string& task, const std::vector<std::string>& more = {}) {
    return tasks_.insert_or_assign(task, sandbox_.StartCommand(With(Where(task), Task(task, more))))
        .first->second;
  }
  /// One more worker than the lists name.
  Program& StartJoining(const std::string& task) {
    std::vector<std::string> command = Task(task, {"--token_file=" + token_, "--join"});
    std::erase_if(command, [](const std::string& flag) {
      return flag.starts_with("--job_name=") || flag.starts_with("--task_index=") ||
             flag.starts_with("--max_workers=");
    });
    return tasks_.insert_or_assign(task, sandbox_.StartCommand(With(Where(task), command)))
        .first->second;
  }
  /// The ps first, until they make their token.
  void StartAll(const std::vector<std::string>& more = {}) {
    for (int i = 0; i < ps_; ++i) {
      const std::string task = fmt::format("ps/{}", i);
      Start(task, more);
      EXPECT_TRUE(tasks_.at(task).WaitFor(" is ready for its workers")) << tasks_.at(task).Err();
    }
    for (int i = 0; i < workers_; ++i) Start(fmt::format("worker/{}", i), more);
  }
  /// `passel arguments...` on the other host, to its end.
  Outcome RunThere(const std::vector<std::string>& arguments) {
    Program program = sandbox_.StartCommand(With(
        {"/usr/bin/env", "nsenter", "--net=" + hosts_.other_host(), PASSEL_PROGRAM}, arguments));
    return sandbox_.Finish(program);
  }
  void Kill(const std::string& task) {
    (*this)[task].Signal(SIGKILL);
    (*this)[task].Wait();
  }
  Outcome Finish(const std::string& task, double seconds = 20) {
    return sandbox_.Finish((*this)[task], seconds);
  }
  void ExpectEnd(int code = 0) {
    for (auto& [task, program] : tasks_) {
      EXPECT_EQ(sandbox_.Finish(program, 20).code, code) << task << program.Err() << program.Out();
    }
    EXPECT_EQ(sandbox_.Leftovers(), "");
  }
  void Stop() { EXPECT_EQ(sandbox_.Run({"ctl", "stop", sandbox_.job()}).code, 0); }
  std::string OnlyErrorOf(const std::string& task, int code = 2) {
    return OnlyError(Finish(task), code);
  }

 private:
  // The program on the host of that task.
  std::vector<std::string> Where(const std::string& task) {
    std::vector<std::string> where;
    if (!names_.empty()) where = TwoHosts::WithAddressBook(AddressBook());
    if (there_.contains(task)) {
      where = With(where, {"/usr/bin/env", "nsenter", "--net=" + hosts_.other_host()});
    }
    return With(where, {PASSEL_PROGRAM});
  }
  std::string AddressOf(const std::string& task) const {
    if (const auto named = names_.find(task); named != names_.end()) return named->second;
    return there_.contains(task) ? TwoHosts::kThere : TwoHosts::kHere;
  }

  TwoHosts& hosts_;
  const int ps_, workers_;
  const std::set<std::string> there_;
  const std::vector<std::string> flags_;
  std::map<std::string, std::string> names_;
  Sandbox sandbox_;
  const std::string token_;
  std::map<std::string, Program> tasks_;
};

inline const std::vector<std::string> kShort = {"--train_steps=60", "--start_wait=20"};
inline const std::vector<std::string> kEndless = {"--train_steps=100000000", "--start_wait=20"};

class SeveralHostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    hosts_ = TwoHosts::Get();
    if (hosts_ == nullptr) GTEST_SKIP() << "no network namespaces can be made here";
  }
  HostsJob Job(int ps, int workers, std::set<std::string> there, std::vector<std::string> flags) {
    return {*hosts_, ps, workers, std::move(there), std::move(flags)};
  }
  TwoHosts* hosts_ = nullptr;
};

}  // namespace passel::testing

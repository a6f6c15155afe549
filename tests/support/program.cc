#include "support/program.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "data/digits.h"
#include "support/dev_shm.h"

namespace passel::testing {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// How many times longer things may take beside whatever else runs: 1 while half of our processors
// are idle, 8 at most.
double Crowd() {
  double load = 0;
  cpu_set_t ours;
  if (::getloadavg(&load, 1) != 1 || ::sched_getaffinity(0, sizeof ours, &ours) != 0) return 1;
  return std::clamp(2 * load / CPU_COUNT(&ours), 1.0, 8.0);
}

double TimeScale() {
  const char* text = std::getenv("PASSEL_TEST_TIME_SCALE");
  const double scale = text == nullptr ? 1 : std::atof(text);
  return (scale > 0 ? scale : 1) * Crowd();
}

// A line of standard error that tells of an error: not "HH:MM:SS.mmm I ...", not a progress line.
bool IsErrorLine(const std::string& line) {
  if (line.empty() || line.starts_with("step ")) return false;
  // "2026-11-21T12:28:57.677+01:00 E text"
  if (line.size() > 31 && line[4] == '-' && line[10] == 'T' && line[29] == ' ')
    return line[30] == 'E';
  return true;
}

}  // namespace

std::chrono::milliseconds Scaled(std::chrono::milliseconds time) {
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(static_cast<double>(time.count()) * TimeScale()));
}
std::chrono::milliseconds Scaled(double seconds) {
  return Scaled(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3)));
}

std::string ReadText(const std::string& path) { return ReadAll(path); }
void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

const std::string& Digits() {
  static const std::string dir = [] {
    const std::string path =
        fmt::format("{}/digits-v{}-6000-1000", PASSEL_TEST_DATA_DIR, kDigitsVersion);
    if (fs::exists(path)) return path;
    // Tests run side by side: whoever is first gives the folder its name.
    const std::string mine = fmt::format("{}.{}", path, ::getpid());
    fs::create_directories(mine);
    const Status written = WriteGeneratedDigits(mine, 6000, 1000, 1);
    EXPECT_TRUE(written.ok()) << written.message();
    std::error_code lost;
    fs::rename(mine, path, lost);
    if (lost) fs::remove_all(mine);
    return path;
  }();
  return dir;
}

std::optional<std::string> SharedDataDir(const std::string& name) {
  const std::string dir = fmt::format("{}/../shared/data/{}", PASSEL_SOURCE_DIR, name);
  if (!fs::exists(dir + "/train-images-idx3-ubyte.gz")) return std::nullopt;
  return dir;
}

bool Program::Running() { return !process_->TryReap().has_value(); }

std::optional<ExitState> Program::Wait(double seconds) {
  const Result<ExitState> exit = process_->Reap(Deadline::After(Scaled(seconds)));
  return exit.ok() ? std::optional(*exit) : std::nullopt;
}

void Program::Signal(int signal) { ::kill(pid(), signal); }
std::string Program::Out() const { return ReadAll(out_); }
std::string Program::Err() const { return ReadAll(err_); }

bool Program::WaitFor(const std::string& text, double seconds) {
  const Deadline deadline = Deadline::After(Scaled(seconds));
  for (;;) {
    if (Err().find(text) != std::string::npos || Out().find(text) != std::string::npos) return true;
    if (deadline.Expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::vector<std::string> With(std::vector<std::string> flags,
                              const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

std::string OnlyError(const Outcome& outcome, int code) {
  EXPECT_EQ(outcome.code, code) << outcome.err << outcome.out;
  EXPECT_EQ(outcome.errors.size(), 1u) << outcome.err;
  return outcome.errors.empty() ? "" : outcome.errors[0];
}

Sandbox::Sandbox() {
  static std::atomic<int> count{0};
  job_ = fmt::format("test-{}-{}", ::getpid(), ++count);
  mark_ = fmt::format("PASSEL_TEST_MARK={}-{}", job_, MonotonicNs());
  dev_shm_ = DevShm();
}

Sandbox::~Sandbox() {
  for (const auto& [pid, command] : Processes()) ::kill(pid, SIGKILL);
}

Program Sandbox::StartCommand(const std::vector<std::string>& command) {
  Program program;
  const int number = ++started_;
  program.out_ = fmt::format("{}/.out-{}", runtime_.path(), number);
  program.err_ = fmt::format("{}/.err-{}", runtime_.path(), number);
  SpawnOptions spawn;
  spawn.executable = "/bin/sh";
  spawn.name = "sh";
  spawn.arguments = {
      "-c", fmt::format("exec \"$0\" \"$@\" </dev/null >{} 2>{}", program.out_, program.err_)};
  spawn.arguments.insert(spawn.arguments.end(), command.begin(), command.end());
  spawn.environment = {mark_, "XDG_RUNTIME_DIR=" + runtime_.path()};
  for (const auto& [name, value] : env_) spawn.environment.push_back(name + "=" + value);
  Result<Subprocess> process = Subprocess::Spawn(spawn);
  EXPECT_TRUE(process.ok()) << process.status().message();
  if (!process.ok()) std::abort();
  program.process_.emplace(std::move(*process));
  return program;
}

Program Sandbox::Start(const std::vector<std::string>& arguments) {
  return StartCommand(With({PASSEL_PROGRAM}, arguments));
}

Outcome Sandbox::Run(const std::vector<std::string>& arguments, double seconds) {
  Program program = Start(arguments);
  return Finish(program, seconds);
}

Outcome Sandbox::Finish(Program& program, double seconds) {
  Outcome outcome;
  if (const auto exit = program.Wait(seconds)) {
    outcome.exit = *exit;
    outcome.code = exit->signalled ? 1000 + exit->code : exit->code;
  }
  outcome.out = program.Out();
  outcome.err = program.Err();
  std::istringstream lines(outcome.err);
  for (std::string line; std::getline(lines, line);) {
    if (IsErrorLine(line)) outcome.errors.push_back(line);
  }
  return outcome;
}

std::vector<std::string> Sandbox::Train(const std::vector<std::string>& more) const {
  return With({"train", "--data_dir=" + Digits(), "--job_id=" + job_}, more);
}

std::vector<std::string> Sandbox::Task(const std::string& name, int index, int ps, int workers,
                                       const std::vector<std::string>& more) const {
  const auto hosts = [](int count, int port) {
    std::string list;
    for (int i = 0; i < count; ++i) list += fmt::format("{}localhost:{}", i ? "," : "", port + i);
    return list;
  };
  return With({"task", "--job_name=" + name, fmt::format("--task_index={}", index),
               "--ps_hosts=" + hosts(ps, 2222), "--worker_hosts=" + hosts(workers, 3222),
               "--job_id=" + job_, "--data_dir=" + Digits()},
              more);
}

std::map<pid_t, std::string> Sandbox::Processes() const {
  std::map<pid_t, std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    const pid_t pid = std::atoi(name.c_str());
    if (pid <= 0 || pid == ::getpid()) continue;
    // The environment of a zombie is empty: it is no leftover of ours to find, its parent reaps it.
    const std::string environment = ReadAll(entry.path() / "environ");
    if (environment.find(mark_) == std::string::npos) continue;
    std::string command = ReadAll(entry.path() / "cmdline");
    std::replace(command.begin(), command.end(), '\0', ' ');
    found[pid] = command;
  }
  return found;
}

pid_t Sandbox::TaskPid(const std::string& name, int index) const {
  for (const auto& [pid, command] : Processes()) {
    if (command.find(fmt::format("--job_name={} ", name)) != std::string::npos &&
        command.find(fmt::format("--task_index={} ", index)) != std::string::npos) {
      return pid;
    }
  }
  return 0;
}

pid_t Sandbox::AwaitTask(const std::string& name, int index, pid_t other_than) const {
  const Deadline deadline = Deadline::After(Scaled(10.0));
  for (;;) {
    const pid_t pid = TaskPid(name, index);
    if (pid != 0 && pid != other_than) return pid;
    if (deadline.Expired()) return 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string Sandbox::LeftoversNow() const {
  std::string left;
  for (const auto& [pid, command] : Processes()) {
    left += fmt::format("process {}: {}\n", pid, command);
  }
  std::istringstream sockets(ReadAll("/proc/net/unix"));
  for (std::string line; std::getline(sockets, line);) {
    if (line.find("@passel.") != std::string::npos && line.find(job_) != std::string::npos) {
      left += "socket " + line + "\n";
    }
  }
  for (const std::string& name : DevShm()) {
    if (!dev_shm_.contains(name)) left += "file /dev/shm/" + name + "\n";
  }
  for (const std::string& name : runtime_.List()) {
    const bool capture = name.starts_with(".out-") || name.starts_with(".err-");
    if (!capture && name != "passel") left += "runtime file " + name + "\n";
  }
  for (const std::string& name : dir_.List()) {
    if (name.find("tmp") != std::string::npos) left += "temporary file " + name + "\n";
  }
  return left;
}

std::string Sandbox::Leftovers(double seconds) const {
  const Deadline deadline = Deadline::After(Scaled(seconds));
  for (;;) {
    std::string left = LeftoversNow();
    if (left.empty() || deadline.Expired()) return left;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

nlohmann::json Sandbox::Status() {
  const Outcome outcome = Run({"ctl", "status", job_, "--json"});
  nlohmann::json json = nlohmann::json::parse(outcome.out, nullptr, false);
  return json.is_object() ? json : nlohmann::json();
}

std::int64_t Sandbox::GlobalStep() {
  const nlohmann::json status = Status();
  if (!status.is_object() || !status.contains("arena")) return -1;
  return status["arena"]["global_step"].get<std::int64_t>();
}

bool Sandbox::AwaitStep(std::int64_t step, double seconds) {
  const Deadline deadline = Deadline::After(Scaled(seconds));
  while (GlobalStep() < step) {
    if (deadline.Expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

bool Sandbox::Advances(std::int64_t steps, double seconds) {
  if (!AwaitStep(0, seconds)) return false;
  return AwaitStep(GlobalStep() + steps, seconds);
}

Outcome Sandbox::Interrupt(Program& program, double seconds) {
  program.Signal(SIGINT);
  Outcome outcome = Finish(program, seconds);
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_EQ(Leftovers(), "");
  return outcome;
}

int Sandbox::Eval(const std::string& model) {
  return Run({"eval", "--model=" + model, "--data_dir=" + Digits()}).code;
}

nlohmann::json ReadJson(const std::string& path) {
  return nlohmann::json::parse(ReadAll(path), nullptr, false);
}

}  // namespace passel::testing

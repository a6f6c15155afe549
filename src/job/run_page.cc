#include "job/run_page.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/subprocess.h"
#include "job/output_path.h"

namespace passel::job {
namespace {

struct Python {
  const char* shown;  // as one would type it
  const char* executable;
  std::vector<std::string> arguments;
};

const std::vector<Python>& Pythons() {
  static const std::vector<Python> pythons = {{"python3", "/usr/bin/env", {"python3"}},
                                              {"/usr/bin/python3", "/usr/bin/python3", {}}};
  return pythons;
}

// The first that can draw; null before CheckRunPage().
const Python*& ChosenPython() {
  static const Python* chosen = nullptr;
  return chosen;
}

std::string Script() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path().parent_path() / "share/passel/page/run_page.py").string();
}

// The last line that the script has printed, without its name before it.
std::string LastLine(int fd) {
  constexpr off_t kMost = 2000;  // bytes
  constexpr std::string_view kName = "run_page: ";
  std::string text(static_cast<std::size_t>(kMost), '\0');
  const off_t end = ::lseek(fd, 0, SEEK_END);
  const ssize_t got = ::pread(fd, text.data(), text.size(), std::max<off_t>(0, end - kMost));
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  text.resize(text.find_last_not_of("\n ") + 1);
  text.erase(0, text.rfind('\n') + 1);
  if (text.starts_with(kName)) text.erase(0, kName.size());
  return text;
}

// Errors: kDeadlineExceeded; kInternal, with what the script says.
Status RunScript(const Python& python, const std::vector<std::string>& arguments,
                 std::chrono::nanoseconds limit, const std::vector<int>& inherited_fds = {}) {
  const FileDescriptor said(::memfd_create("passel.page", MFD_CLOEXEC));
  SpawnOptions spawn;
  spawn.executable = spawn.name = python.executable;
  spawn.arguments = python.arguments;
  spawn.arguments.emplace_back("-B");  // leaves nothing beside the script
  spawn.arguments.push_back(Script());
  spawn.arguments.insert(spawn.arguments.end(), arguments.begin(), arguments.end());
  spawn.inherited_fds = inherited_fds;
  spawn.out = spawn.err = said.get();
  PASSEL_ASSIGN_OR_RETURN(Subprocess process, Subprocess::Spawn(spawn));
  const Result<ExitState> exit = process.Reap(Deadline::After(limit));
  if (!exit.ok()) {
    return DeadlineExceeded(
        fmt::format("it took more than {:.3g} s{}", ToSeconds(limit),
                    limit < kPageLimit ? ", and --grace leaves no more for it" : ""));
  }
  if (!exit->signalled && exit->code == 0) return {};
  const std::string reason = LastLine(said.get());
  return Internal(reason.empty() ? fmt::format("run_page.py {}", exit->ToString()) : reason);
}

// `json` reaches the script without a file, which could be in somebody's way.
Status RunScriptOn(const std::string& json, const std::string& path,
                   std::chrono::nanoseconds limit) {
  PASSEL_ASSIGN_OR_RETURN(const FileDescriptor file,
                          CreateConstantFile("passel.report", json.data(), json.size()));
  // A path that begins with a dash is no option.
  return RunScript(*ChosenPython(), {"--", fmt::format("/proc/self/fd/{}", file.get()), path},
                   limit, {file.get()});
}

}  // namespace

Status CheckRunPage(const char* flag, const std::string& path) {
  if (path == "-") {
    return InvalidArgument(
        fmt::format("{} - is no file: a page is not printed, so name one", flag));
  }
  PASSEL_RETURN_IF_ERROR(CheckOutputPath(flag, path));
  const char* const elsewhere =
      "use --report and make the page of it elsewhere with tools/run_page";
  if (!std::filesystem::exists(Script())) {
    return InvalidArgument(fmt::format(
        "{} {} cannot be made, since {} is missing: install passel as a whole (cmake --install), "
        "or {}",
        flag, path, Script(), elsewhere));
  }
  std::string reasons;
  for (const Python& python : Pythons()) {
    const Status checked = RunScript(python, {"--check"}, kPageLimit);
    if (checked.ok()) {
      ChosenPython() = &python;
      return {};
    }
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", checked.message());
  }
  return InvalidArgument(
      fmt::format("{} {} cannot be made ({}): install the Debian packages python3 and "
                  "python3-matplotlib, or {}",
                  flag, path, reasons, elsewhere));
}

Status MakeRunPage(const std::string& path, const JobReport& report,
                   std::chrono::nanoseconds limit) {
  PASSEL_CHECK(ChosenPython() != nullptr, "the page was checked before training");
  const Status made = RunScriptOn(ToJson(report), path, limit);
  if (made.ok()) {
    LogInfo("the page of this run is {}", path);
    return {};
  }
  const std::string failure = fmt::format("the page {} was not made ({})", path, made.message());
  const std::string kept = path + ".json";
  PASSEL_RETURN_IF_ERROR(
      WriteReport(kept, report).WithContext(failure + ", nor was its report kept"));
  return Internal(fmt::format("{}: its report is kept, and  {} {} {} {}  makes the page", failure,
                              ChosenPython()->shown, Script(), kept, path));
}

}  // namespace passel::job

#include "job/run_page.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/subprocess.h"
#include "job/output_path.h"

namespace passel::job {
namespace {

// Far more than a page takes; the first use of matplotlib looks at all fonts of the machine.
constexpr std::chrono::seconds kPageLimit{60};
// Exit codes of the script and of env.
constexpr int kNoMatplotlib = 3, kNoPython = 127;

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

std::string Script() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path().parent_path() / "share/passel/page/run_page.py").string();
}

// What a run of the script came to; `reason` is the last line that it printed.
struct Try {
  const char* python = "";
  bool can_draw = false;
  bool done = false;
  std::string reason{};
};

std::string LastLine(int fd) {
  constexpr off_t kMost = 2000;  // bytes
  std::string text(static_cast<std::size_t>(kMost), '\0');
  const off_t end = ::lseek(fd, 0, SEEK_END);
  const ssize_t got = ::pread(fd, text.data(), text.size(), std::max<off_t>(0, end - kMost));
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  text.resize(text.find_last_not_of("\n ") + 1);
  return text.substr(text.rfind('\n') + 1);
}

Try RunWith(const Python& python, const std::vector<std::string>& arguments, int inherited) {
  Try result{python.shown};
  const FileDescriptor said(::memfd_create("passel.page", MFD_CLOEXEC));
  SpawnOptions spawn;
  spawn.executable = spawn.name = python.executable;
  spawn.arguments = python.arguments;
  spawn.arguments.emplace_back("-B");  // leaves nothing beside the script
  spawn.arguments.push_back(Script());
  spawn.arguments.insert(spawn.arguments.end(), arguments.begin(), arguments.end());
  if (inherited >= 0) spawn.inherited_fds.push_back(inherited);
  spawn.out = spawn.err = said.get();
  Result<Subprocess> process = Subprocess::Spawn(spawn);
  if (!process.ok()) {
    result.reason = process.status().message();
    return result;
  }
  const Result<ExitState> exit = process->Reap(Deadline::After(kPageLimit));
  if (!exit.ok()) {
    result.can_draw = true;
    result.reason = fmt::format("it took more than {} s", kPageLimit.count());
    return result;
  }
  result.can_draw = exit->signalled || (exit->code != kNoMatplotlib && exit->code != kNoPython);
  result.done = !exit->signalled && exit->code == 0;
  result.reason = LastLine(said.get());
  if (result.reason.empty()) result.reason = fmt::format("run_page.py {}", exit->ToString());
  return result;
}

// With the first Python that can draw.
Try RunScript(const std::vector<std::string>& arguments, int inherited = -1) {
  Try last;
  for (const Python& python : Pythons()) {
    last = RunWith(python, arguments, inherited);
    if (last.can_draw) break;
  }
  return last;
}

}  // namespace

Status CheckRunPage(const char* flag, const std::string& path) {
  if (path == "-") {
    return InvalidArgument(
        fmt::format("{} - is no file: a page is not printed, so name one", flag));
  }
  PASSEL_RETURN_IF_ERROR(CheckOutputPath(flag, path));
  if (!std::filesystem::exists(Script())) {
    return InvalidArgument(fmt::format(
        "{} {} cannot be made, since {} is missing: install passel as a whole (cmake --install), "
        "or use --report and make the page of it elsewhere with tools/run_page",
        flag, path, Script()));
  }
  const Try check = RunScript({"--check"});
  if (check.done) return {};
  return InvalidArgument(fmt::format(
      "{} {} cannot be made ({}): install the Debian packages python3 and python3-matplotlib, or "
      "use --report and make the page of it elsewhere with tools/run_page",
      flag, path, check.reason));
}

Status MakeRunPage(const std::string& path, const JobReport& report) {
  const std::string json = ToJson(report);
  const Result<FileDescriptor> file = CreateConstantFile("passel.report", json.data(), json.size());
  Try made;
  if (file.ok()) {
    // A path that begins with a dash is no option.
    made = RunScript({"--", fmt::format("/proc/self/fd/{}", file->get()), path}, file->get());
  } else {
    made = {.python = Pythons().front().shown, .reason = file.status().message()};
  }
  if (made.done) {
    LogInfo("the page of this run is {}", path);
    return {};
  }
  const std::string kept = path + ".json";
  PASSEL_RETURN_IF_ERROR(
      WriteReport(kept, report)
          .WithContext(fmt::format("the page {} was not made ({}), nor was its report kept", path,
                                   made.reason)));
  return Internal(fmt::format(
      "the page {} was not made ({}): its report is kept, and  {} {} {} {}  makes the page", path,
      made.reason, made.python, Script(), kept, path));
}

}  // namespace passel::job

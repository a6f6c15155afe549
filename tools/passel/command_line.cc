#include "tools/passel/command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/nvtx.h"
#include "base/output.h"
#include "job/exit_code.h"
#include "job/run_info.h"
#include "tools/passel/arguments.h"

namespace passel {
namespace {

// The last lines of a log, before they are given up.
constexpr std::chrono::seconds kReaderPatience{1};

FlagType TypeOf(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return FlagType::kBool;
  if (option.get_expected_max() > 1) return FlagType::kList;
  const std::string type = option.get_type_name();
  if (type == "INT" || type == "UINT") return FlagType::kInteger;
  if (type == "FLOAT") return FlagType::kNumber;
  return FlagType::kText;
}

std::string NameOf(const CLI::Option& option) {
  return option.get_lnames().empty() ? "" : option.get_lnames().front();
}

std::string ValueOf(const CLI::Option& option, FlagType type) {
  if (type == FlagType::kBool) {
    return (option.count() > 0 ? option.as<bool>() : option.get_default_str() == "true") ? "true"
                                                                                         : "false";
  }
  if (option.count() == 0) return option.get_default_str();
  std::string text;
  for (const std::string& value : option.results()) text += (text.empty() ? "" : ",") + value;
  return text;
}

void Keep(CLI::Option* option, job::TypedNumbers* typed) {
  option->each([typed, flag = "--" + option->get_lnames().front()](const std::string& text) {
    typed->Keep(flag, text);
  });
}

FlagText TextOf(const CLI::Option& option) {
  FlagText text;
  text.is_argument = option.get_positional();
  const std::vector<std::string>& negated = option.get_fnames();
  for (const std::string& name : option.get_lnames()) {
    if (std::find(negated.begin(), negated.end(), name) == negated.end()) text.also.push_back(name);
  }
  text.negatable = !negated.empty();
  if (text.is_argument) {
    text.name = option.get_name(/*positional=*/true);
  } else {
    text.name = text.also.front();
    text.also.erase(text.also.begin());
  }
  if (option.get_items_expected_max() > 0) text.value = option.get_type_name();
  if (!option.get_option_text().empty()) {
    text.name = option.get_option_text();
    text.value = "";
  }
  text.optional = !option.get_required() && option.get_option_text().empty();
  text.shown = option.get_default_str();
  text.help = option.get_description();
  text.group = option.get_group() == "Options" ? "Flags" : option.get_group();
  return text;
}

CommandText TextOf(const CLI::App& app, const std::string& name) {
  CommandText text;
  text.name = name;
  text.about = app.get_description();
  text.examples = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    const std::string flag = NameOf(*option);
    if (option->get_group().empty() || flag == "help" || flag == "help-all") continue;
    text.flags.push_back(TextOf(*option));
  }
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    text.commands.push_back(TextOf(*sub, name + " " + sub->get_name()));
  }
  return text;
}

// The exit code after all that goes to standard output: a full disk, say, is an error, while the
// pipe of a reader that has gone ends us by a signal.
int EndOutput(const CLI::App& app, int code) {
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return code;
  // What an earlier write failed of, nobody knows any more.
  fmt::print(stderr, "{}: not everything could be printed: {}\n", CommandName(app),
             flushed ? "writing to standard output failed" : std::strerror(errno));
  return code == job::kExitDone ? job::kExitFailed : code;
}

}  // namespace

FlagSpec& FlagSpec::Group(const char* name) {
  option_->group(name);
  return *this;
}

FlagSpec& FlagSpec::ShowDefault() {
  option_->capture_default_str();
  return *this;
}

FlagSpec& FlagSpec::ShowDefault(const std::string& text) {
  option_->default_str(text);
  return *this;
}

FlagSpec& FlagSpec::SplitAt(char delimiter) {
  option_->delimiter(delimiter);
  return *this;
}

FlagSpec& FlagSpec::Required() {
  option_->required();
  return *this;
}

FlagSpec& FlagSpec::Takes(int least, int most) {
  option_->expected(least, most);
  return *this;
}

FlagSpec& FlagSpec::ShowAs(const char* text) {
  option_->option_text(text);
  return *this;
}

FlagSpec& FlagSpec::Check(std::function<std::string(const std::string&)> wrong) {
  // The parser takes one that may change the text.
  option_->check(
      CLI::Validator([wrong](std::string& text) { return wrong(text); }, "", option_->get_name()));
  return *this;
}

FlagSpec& FlagSpec::KeepTyped(job::TypedNumbers* typed) {
  Keep(option_, typed);
  return *this;
}

Command Command::AddCommand(const char* name, const char* help) {
  return {*app_->add_subcommand(name, help), run_};
}

void Command::NeedsCommand() { app_->require_subcommand(1); }

void Command::OnRun(Run run) {
  app_->callback([chosen = run_, run = std::move(run)] { *chosen = run; });
}

template <typename T>
FlagSpec Command::Add(const char* names, T* value, const std::string& help) {
  return FlagSpec(app_->add_option(names, *value, help));
}
template FlagSpec Command::Add(const char*, std::string*, const std::string&);
template FlagSpec Command::Add(const char*, int*, const std::string&);
template FlagSpec Command::Add(const char*, std::int64_t*, const std::string&);
template FlagSpec Command::Add(const char*, std::uint32_t*, const std::string&);
template FlagSpec Command::Add(const char*, std::uint64_t*, const std::string&);
template FlagSpec Command::Add(const char*, double*, const std::string&);
template FlagSpec Command::Add(const char*, std::optional<std::string>*, const std::string&);
template FlagSpec Command::Add(const char*, std::optional<int>*, const std::string&);
template FlagSpec Command::Add(const char*, std::optional<std::int64_t>*, const std::string&);
template FlagSpec Command::Add(const char*, std::optional<double>*, const std::string&);
template FlagSpec Command::Add(const char*, std::vector<std::string>*, const std::string&);

FlagSpec Command::AddSwitch(const char* names, bool* value, const char* help) {
  return FlagSpec(app_->add_flag(names, *value, help));
}

FlagSpec Command::AddPrinter(const char* name, const char* help,
                             std::function<Result<std::string>(const std::string&)> text) {
  CLI::Option* const option = app_->add_option_function<std::string>(
      name,
      [text = std::move(text)](const std::string& value) {
        const Result<std::string> printed = text(value);
        if (!printed.ok()) throw CLI::ValidationError(printed.status().message());
        throw CLI::CallForVersion(*printed, 0);
      },
      help);
  option->trigger_on_parse();
  return FlagSpec(option);
}

void Command::Describe(const char* flag, const char* help) {
  app_->get_option(flag)->description(help);
}

void Command::KeepTypedNumbers(job::TypedNumbers* typed) {
  for (CLI::Option* option : app_->get_options()) {
    if (option->get_type_name() == "FLOAT") Keep(option, typed);
  }
}

void Command::Examples(const char* lines) { app_->footer(lines); }

CommandText Command::Text() const { return TextOf(*app_, app_->get_name()); }

std::string Command::name() const { return app_->get_name(); }

bool Command::Has(const std::string& flag) const {
  return app_->get_option_no_throw(flag) != nullptr;
}

bool Command::Given(const std::string& flag) const {
  const CLI::Option* const option = app_->get_option_no_throw(flag);
  return option != nullptr && option->count() > 0;
}

std::vector<Flag> Command::Flags() const {
  std::vector<Flag> flags;
  for (const CLI::Option* option : app_->get_options()) {
    const std::string name = NameOf(*option);
    if (name.empty() || name == "help" || name == "help-all" || name == "print_preset" ||
        option->get_group().empty())
      continue;
    Flag flag;
    flag.name = name;
    flag.type = TypeOf(*option);
    flag.value = ValueOf(*option, flag.type);
    flag.given = option->count() > 0;
    flags.push_back(std::move(flag));
  }
  return flags;
}

Status Command::Give(const std::string& flag, const std::string& text) {
  CLI::Option* const option = app_->get_option(flag);
  try {
    option->add_result(text);
    option->run_callback();
  } catch (const CLI::Error& error) {
    return InvalidArgument(error.what());
  }
  return {};
}

Status Command::SetDefault(const std::string& flag, const std::string& text) {
  CLI::Option* const option = app_->get_option(flag);
  option->run_callback_for_default();
  try {
    option->default_val(text);
  } catch (const CLI::Error& error) {
    return InvalidArgument(error.what());
  }
  return {};
}

int FinishCommand(const Status& status) {
  if (!status.ok()) LogError("{}", status.message());
  std::fflush(stdout);
  return job::ExitCodeFor(status);
}

int RunCommandLine(int argc, char** argv, const std::function<void(Command&)>& add) {
  CLI::App app{"Trains with a parameter server: workers share the parameters in memory.", "passel"};
  app.set_version_flag("--version",
                       fmt::format("passel {}\nbuilt {}", job::Version(), nvtx::Describe()));
  app.set_help_all_flag("--help-all", "");
  Run run;
  Command program(app, &run);
  program.NeedsCommand();
  add(program);
  try {
    app.parse(ReversedArguments(app, argc, argv));
  } catch (const CLI::Success& request) {  // --help, --version
    const bool all = request.get_name() == "CallForAllHelp";
    if (all || request.get_name() == "CallForHelp") {
      fmt::print("{}", HelpPage(TextOf(UsedCommand(app), CommandName(app)), all, TerminalWidth()));
      return EndOutput(app, job::kExitDone);
    }
    return EndOutput(app, app.exit(request));
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "{}\n", Explain(app, error));
    return job::kExitUsage;
  }
  if (const Status status = CheckArguments(app); !status.ok()) {
    fmt::print(stderr, "{}: {}\n", CommandName(app), status.message());
    return job::kExitUsage;
  }
  const int code = run();
  for (const Stream stream : {Stream::kOut, Stream::kErr}) FlushOutput(stream, kReaderPatience);
  return EndOutput(app, code);
}

}  // namespace passel

// command_line.h - the commands of the program and their flags, without the library that parses
// them: CLI11 takes seconds to compile, and only command_line.cc and arguments.cc include it.
//
//   Command eval = passel.AddCommand("eval", "Loss and accuracy of saved variables");
//   eval.Add("--set", &flags->set, "test, validation or train").Group("Data").ShowDefault();
//   eval.OnRun([flags] { return Evaluate(*flags); });
//
// The variables behind flags outlive the parsing and stay where they are until then.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/resolve.h"
#include "job/flag_checks.h"
#include "tools/passel/help.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace passel {

/// What a command does; returns the exit code.
using Run = std::function<int()>;

/// One flag that was added. Every call returns *this.
class FlagSpec {
 public:
  explicit FlagSpec(CLI::Option* option) : option_(option) {}

  FlagSpec& Group(const char* name);  ///< "": no help shows it
  FlagSpec& ShowDefault();            ///< help shows what the variable holds now
  FlagSpec& ShowDefault(const std::string& text);
  FlagSpec& SplitAt(char delimiter);  ///< several values in one text
  FlagSpec& Required();
  FlagSpec& Takes(int least, int most);  ///< values
  FlagSpec& ShowAs(const char* text);    ///< help shows that for its name and type
  /// `wrong` returns what is wrong with a text, or "".
  FlagSpec& Check(std::function<std::string(const std::string&)> wrong);
  /// Keeps in `typed` what is given, on the command line or by a file.
  FlagSpec& KeepTyped(job::TypedNumbers* typed);

 private:
  CLI::Option* option_;
};

/// A command, or the program itself. Copies are the same command.
class Command {
 public:
  /// The one that is chosen puts what it does into `*run`.
  Command(CLI::App& app, Run* run) : app_(&app), run_(run) {}

  Command AddCommand(const char* name, const char* help);
  /// One of its commands must be given.
  void NeedsCommand();
  void OnRun(Run run);
  /// Lines that its help ends with.
  void Examples(const char* lines);

  /// `names`: "--params,--model"; without dashes: an argument. T: std::string, int, std::int64_t,
  /// std::uint32_t, std::uint64_t, double, an optional one of these, a vector of texts.
  template <typename T>
  FlagSpec Add(const char* names, T* value, const std::string& help);
  /// `names`: "--overlap,!--nooverlap", where the second one sets it to false.
  FlagSpec AddSwitch(const char* names, bool* value, const char* help);
  /// A flag with a value that prints what `text` says of it, and ends the program.
  FlagSpec AddPrinter(const char* name, const char* help,
                      std::function<Result<std::string>(const std::string&)> text);
  /// Another help for a flag that it has.
  void Describe(const char* flag, const char* help);
  /// FlagSpec::KeepTyped() of all flags so far that are no whole numbers.
  void KeepTypedNumbers(job::TypedNumbers* typed);

  std::string name() const;
  /// What help and the manual show, with its commands.
  CommandText Text() const;
  /// `flag`: with dashes.
  bool Has(const std::string& flag) const;
  /// After parsing: typed, or set by Give(). False for a flag that it does not have.
  bool Given(const std::string& flag) const;
  /// All flags that a user sees, without arguments and --help, as src/cluster/resolve.h wants them.
  std::vector<Flag> Flags() const;
  /// As if it had been typed. Errors: kInvalidArgument for a text that the flag does not take.
  Status Give(const std::string& flag, const std::string& text);
  /// Sets the variable, and what is shown as its default; it still counts as not given. Errors:
  /// kInvalidArgument.
  Status SetDefault(const std::string& flag, const std::string& text);

 private:
  CLI::App* app_;
  Run* run_;
};

/// Ends a command: flushes standard output, says what went wrong, if anything, and returns the exit
/// code.
int FinishCommand(const Status& status);

/// Adds the commands by `add`, parses the command line, runs what it names and flushes standard
/// output. Returns the exit code: kExitUsage, with a sentence on standard error, where the parser
/// or CheckArguments() refuses.
int RunCommandLine(int argc, char** argv, const std::function<void(Command&)>& add);

}  // namespace passel

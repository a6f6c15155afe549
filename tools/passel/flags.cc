#include "tools/passel/flags.h"

#include <fmt/core.h>

#include <charconv>
#include <limits>
#include <type_traits>

#include "base/check.h"

namespace passel {

namespace {

// "" if it is one. The parser itself would wrap negative numbers around.
std::string IsNotASeed(const std::string& text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end) return "";
  return fmt::format("a seed is a number from 0 to {}, not \"{}\"",
                     std::numeric_limits<std::uint64_t>::max(), text.substr(0, 64));
}

// "--bind,--pin"; of a switch that a user sees "--overlap,!--nooverlap".
std::string NamesOf(const job::SettingRow& row, bool negated) {
  std::string names = fmt::format("--{}", row.name);
  if (row.traits.alias != nullptr) names += fmt::format(",--{}", row.traits.alias);
  return negated ? fmt::format("{},!--no{}", names, row.name) : names;
}

// A flag of another command for a setting of the table.
void AddKnown(Command& command, const char* name, const job::SettingValue& value) {
  const job::SettingRow* const row = job::FindSetting(name);
  PASSEL_CHECK(row != nullptr, "the table has what other commands share");
  AddSetting(command, *row, value);
}

}  // namespace

void AddSetting(Command& command, const job::SettingRow& row, const job::SettingValue& value) {
  const auto finish = [&](FlagSpec flag) {
    flag.Group(row.group.c_str());
    flag.ShowDefault(row.traits.shown != nullptr ? row.traits.shown : job::TextOf(value));
    return flag;
  };
  const auto add = [&](auto field) {
    using Field = decltype(field);
    if constexpr (std::is_same_v<Field, bool*>) {
      const std::string names = NamesOf(row, !row.group.empty());
      finish(command.AddSwitch(names.c_str(), field, row.help.c_str()));
    } else if constexpr (std::is_pointer_v<Field>) {
      FlagSpec flag = finish(command.Add(NamesOf(row, false).c_str(), field, row.help));
      if constexpr (std::is_same_v<Field, std::uint64_t*>) flag.Check(IsNotASeed);
      if constexpr (std::is_same_v<Field, std::vector<std::string>*>) flag.SplitAt(',');
    }
  };
  std::visit(add, value);
}

void AddSettings(Command& command, const job::SettingsView& view) {
  AddSettings(command, view, [&](const job::SettingRow& row) {
    return row.traits.only == nullptr || row.traits.only == command.name();
  });
}

void AddSettings(Command& command, const job::SettingsView& view,
                 const std::function<bool(const job::SettingRow&)>& wanted) {
  for (const job::SettingRow& row : job::SettingsTable()) {
    if (wanted(row)) AddSetting(command, row, row.value(view));
  }
  command.KeepTypedNumbers(&std::get<job::JobSettings*>(view)->typed);
}

void AddCsvLimitFlags(Command& app, const job::SettingValue& train, const job::SettingValue& test) {
  AddKnown(app, "csv_train_limit", train);
  AddKnown(app, "csv_test_limit", test);
}

void AddLocationFlags(Command& app, job::SourceSettings* flags, const char* help) {
  AddKnown(app, "data_dir", &flags->data_dir);
  app.Describe("--data_dir", help);
  AddKnown(app, "download_url", &flags->download_url);
}

void AddSourceFlags(Command& app, job::SourceSettings* flags) {
  AddKnown(app, "data_dir", &flags->data_dir);
  AddKnown(app, "download_url", &flags->download_url);
  AddKnown(app, "fake_data", &flags->fake_data);
}

void AddParameterFlags(Command& app, job::ParameterSettings* flags) {
  app.Add("--params,--model", &flags->params,
          "A .safetensors file of passel train --save, a checkpoint (train/model.ckpt-500), or a "
          "folder of checkpoints: its newest one")
      .Group("Parameters");
  app.Add("--job", &flags->job,
          "A running job of this user on this host (passel ctl list): a copy of its values "
          "as they are now")
      .Group("Parameters");
  app.AddSwitch("--consistent", &flags->consistent,
                "With --job: its workers wait between two steps while the values are copied, so "
                "that all of them are of one step. In barrier and replicas they are without it")
      .Group("Parameters");
  app.Add("--wait", &flags->wait,
          "With --job: seconds after which to give up without an answer or first values")
      .Group("Parameters")
      .ShowDefault()
      .KeepTyped(&flags->typed);
}

}  // namespace passel

// `passel ckpt`: what checkpoints there are, what is in them, whether they are whole, and their
// values for other programs.

#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "job/checkpoint_description.h"
#include "job/checkpoint_difference.h"
#include "job/checkpoint_export.h"
#include "job/checkpoint_listing.h"
#include "job/checkpoint_verification.h"
#include "job/exit_code.h"
#include "job/result_output.h"
#include "tools/passel/commands.h"
#include "tools/passel/json_file.h"

namespace passel {
namespace {

constexpr const char* kPathHelp =
    "A folder, of which the newest checkpoint is taken; one checkpoint of it, "
    "FOLDER/model.ckpt-500 or FOLDER/best; or a file, also of --save";

struct CkptFlags {
  std::vector<std::string> paths;
  std::string path = ".", other, file, json;
  bool slots = false, values = false;
};

Status PrepareJson(const CkptFlags& flags) {
  if (flags.json.empty()) return {};
  std::vector<std::string> read = flags.paths;
  read.insert(read.end(), {flags.path, flags.other});
  PASSEL_RETURN_IF_ERROR(job::CheckNoCheckpoint("--json", flags.json, read));
  return job::PrepareResult("--json", flags.json);
}

Status Answer(const CkptFlags& flags, const std::string& text, const Json& json) {
  fmt::print("{}", text);
  return flags.json.empty() ? Status() : WriteJsonFile(flags.json, json);
}

Status List(const CkptFlags& flags) {
  PASSEL_RETURN_IF_ERROR(PrepareJson(flags));
  PASSEL_ASSIGN_OR_RETURN(const job::CheckpointListing listing, job::ListCheckpoints(flags.path));
  return Answer(flags, ToText(listing), ToJson(listing));
}

Status Show(const CkptFlags& flags) {
  PASSEL_RETURN_IF_ERROR(PrepareJson(flags));
  PASSEL_ASSIGN_OR_RETURN(const job::StoredTensors stored, job::StoredTensors::Open(flags.path));
  PASSEL_ASSIGN_OR_RETURN(const job::StoredDescription description, job::Describe(stored));
  return Answer(flags, ToText(description), ToJson(description));
}

// What is not whole is an error of its own kind: whoever asks wants to know it.
int Verify(const CkptFlags& flags) {
  if (const Status ready = PrepareJson(flags); !ready.ok()) return FinishCommand(ready);
  Json json = Json::MakeList();
  bool broken = false, wrong = false;
  const auto tell = [&](const Status& why) {
    LogError("{}", why.message());
    const bool lost = why.code() == Code::kDataLoss;
    (lost || job::ExitCodeFor(why) != job::kExitUsage ? broken : wrong) = true;
  };
  for (const std::string& path : flags.paths) {
    const auto verified = job::VerifyCheckpoints(path);
    if (!verified.ok()) {
      tell(verified.status());
      continue;
    }
    for (const job::VerifiedCheckpoint& one : *verified) {
      fmt::print("{}\n", one.Text());
      for (const std::string& what : one.broken) LogError("{}", what);
      broken = broken || !one.broken.empty();
      if (!one.not_read.ok()) tell(one.not_read);
      json.Add(one.AsJson());
    }
  }
  if (!flags.json.empty()) {
    if (const Status written = WriteJsonFile(flags.json, json); !written.ok()) {
      return FinishCommand(written);
    }
  }
  return wrong ? job::kExitUsage : broken ? job::kExitFailed : job::kExitDone;
}

Result<bool> SameOrNot(const CkptFlags& flags) {
  PASSEL_RETURN_IF_ERROR(PrepareJson(flags));
  PASSEL_ASSIGN_OR_RETURN(const job::StoredTensors one, job::StoredTensors::Open(flags.path));
  PASSEL_ASSIGN_OR_RETURN(const job::StoredTensors two, job::StoredTensors::Open(flags.other));
  PASSEL_ASSIGN_OR_RETURN(
      const job::StoredDifference difference,
      job::FindDifferences(one, two,
                           flags.values ? job::Compare::kValuesAlone : job::Compare::kAll));
  PASSEL_RETURN_IF_ERROR(Answer(flags, ToText(difference), ToJson(difference)));
  return difference.Same();
}

int Diff(const CkptFlags& flags) {
  const Result<bool> same = SameOrNot(flags);
  if (!same.ok()) return FinishCommand(same.status());
  return *same ? job::kExitDone : job::kExitFailed;
}

Status ExportCommand(const CkptFlags& flags) {
  PASSEL_RETURN_IF_ERROR(job::CheckExportPath(flags.file));
  PASSEL_ASSIGN_OR_RETURN(const job::StoredTensors stored, job::StoredTensors::Open(flags.path));
  PASSEL_RETURN_IF_ERROR(job::ExportValues(
      stored, flags.file, flags.slots ? job::Export::kSlotsToo : job::Export::kValuesAlone));
  fmt::print("{}: the values of {}\n", flags.file, stored.name());
  return {};
}

void AddJsonFlag(Command& command, CkptFlags* flags) {
  command.Add("--json", &flags->json,
              "Write the answer as JSON to this file; -: to standard output, and everything else "
              "to standard error");
}

}  // namespace

void AddCkptCommand(Command& program) {
  Command ckpt = program.AddCommand("ckpt", "List, show, verify, compare or export checkpoints");
  ckpt.NeedsCommand();
  auto flags = std::make_shared<CkptFlags>();

  Command list = ckpt.AddCommand("ls", "The checkpoints of a folder, and why each is kept");
  list.Add("FOLDER", &flags->path, "As of --checkpoint_dir").ShowDefault();
  AddJsonFlag(list, flags.get());
  list.OnRun([flags] { return FinishCommand(List(*flags)); });

  Command show = ckpt.AddCommand("show", "What a checkpoint says of its job, and its tensors");
  show.Add("PATH", &flags->path, kPathHelp).Required();
  AddJsonFlag(show, flags.get());
  show.OnRun([flags] { return FinishCommand(Show(*flags)); });

  Command verify = ckpt.AddCommand(
      "verify", "Read every byte. 0: all are whole; 1: something is broken, and what");
  verify
      .Add("PATH", &flags->paths,
           "A folder, of which all checkpoints are read; one checkpoint of it, "
           "FOLDER/model.ckpt-500 or FOLDER/best; or a file, also of --save")
      .Required();
  AddJsonFlag(verify, flags.get());
  verify.OnRun([flags] { return Verify(*flags); });

  Command diff = ckpt.AddCommand(
      "diff", "In what two checkpoints differ, whatever parts they are in. 0: in nothing");
  diff.Add("A", &flags->path, kPathHelp).Required();
  diff.Add("B", &flags->other, "As A").Required();
  diff.AddSwitch("--values", &flags->values,
                 "Compare the values of the variables alone: no slot variables, and no words");
  AddJsonFlag(diff, flags.get());
  diff.OnRun([flags] { return Diff(*flags); });

  Command to_file = ckpt.AddCommand("export", "The values as one file for other programs");
  to_file.Add("PATH", &flags->path, kPathHelp).Required();
  to_file
      .Add("FILE", &flags->file,
           "NAME.safetensors, which passel takes too, or NAME.npz for NumPy. One that is there is "
           "replaced")
      .Required();
  to_file.AddSwitch("--slots", &flags->slots, "Slot variables, too");
  to_file.OnRun([flags] { return FinishCommand(ExportCommand(*flags)); });
}

}  // namespace passel

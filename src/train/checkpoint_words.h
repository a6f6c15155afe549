// checkpoint_words.h - what the metadata of a checkpoint say of the job, beside its model
// (train/model_words.h) and which part of a set it is (io/checkpoint_folder.h).
//
//   format        "passel-2"
//   mode          "barrier" or "ssp=3": the mode in force when it was saved
//   optimizer     "adam", and slots "Adam,Adam_1": beside the values of a variable "w" there are
//                 "w/Adam" and "w/Adam_1", in the order in which the update takes them
//   settings      {"learning_rate":"0.01",...}, the settings of the job by their names, as texts
//   rates         {"groups":[{"learning_rate":0.001,"weight_decay":0.01}]}, of part 0 alone: what
//   was
//                 in force of each group of variables, where any were set while it trained
//   data          an object: what the job was trained on
//   cluster       {"ps":3,"workers":4}, and "places":8 where the job had more of them than workers
//   exact         "true": all parts hold the values of the one step; "false": each float is of
//                 some time during the save
//   last_global_step  where that is "false": "5012", the step when all had been copied; without it
//                 they were copied as they were written
//   begun_with    where the training of this folder began with a checkpoint of another: its "save"
//   rows/NAME     "392 784": the tensor NAME has the rows from 392 on of a variable of 784 rows
//   mixed_blocks  "   2 of 1234": blocks of a part in which an update may be half there
//
// A saved model has the format, the words of its model, and no tensors but values.
//
// Thread safety: no state.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "nn/model_config.h"
#include "store/parameter_store.h"

namespace passel {

inline constexpr const char* kFormatKey = "format";
/// Metadata "format" of what is written; kFormerModelFormat: of saved models before there were
/// checksums and words for all of a model.
inline constexpr const char* kSavedModelFormat = "passel-2";
inline constexpr const char* kFormerModelFormat = "passel-model-1";

inline constexpr const char* kModeKey = "mode";
inline constexpr const char* kOptimizerKey = "optimizer";

inline constexpr const char* kBegunWithKey = "begun_with";
/// The values are of steps from the set's to this one.
inline constexpr const char* kLastStepKey = "last_global_step";
/// Of one length, whatever the step: it is known only when most of the file is there.
std::string LastStepText(std::int64_t step);

using Words = std::map<std::string, std::string>;

/// OK unless the format is one of passel that is not known. Errors: kInvalidArgument.
Status CheckFormat(const Words& words);

struct CheckpointWords {
  ModelConfig model;
  std::string mode;
  Json settings = Json::MakeObject();
  Json data = Json::MakeObject();
  int ps = 0;
  int workers = 0;  ///< that the job was to have
  int places = 0;   ///< for workers; 0: as many as `workers`
  bool exact = false;
};
/// Adds all of them, and the format.
void AddWords(const CheckpointWords& checkpoint, Words* words);
/// Errors: kDataLoss, naming the word that is missing or not understood.
Result<CheckpointWords> CheckpointFromWords(const Words& words);

/// An optimizer, as far as it must be the same to go on with its slot variables.
struct OptimizerWords {
  std::string name;
  std::vector<std::string> slots;
  bool operator==(const OptimizerWords&) const = default;
};
void AddWords(const OptimizerWords& optimizer, Words* words);
/// Errors: kDataLoss.
Result<OptimizerWords> OptimizerFromWords(const Words& words);
/// Adds nothing if there are none.
void AddWords(std::span<const GroupRates> rates, Words* words);
/// Empty, if they say nothing of them. Errors: kDataLoss.
Result<std::vector<GroupRates>> RatesFromWords(const Words& words);
/// The tensor of slot variable `slot`.
std::string SlotTensor(std::string_view variable, std::string_view slot);

/// Where a tensor belongs that has some rows of a variable.
struct RowsOf {
  std::int64_t first = 0;  ///< row
  std::int64_t all = 0;    ///< rows of the variable
};
std::string RowsKey(std::string_view tensor);
std::string ToText(const RowsOf& rows);
/// Nothing if the text is not what ToText() writes.
std::optional<RowsOf> ParseRows(std::string_view text);

inline constexpr const char* kMixedBlocksKey = "mixed_blocks";
struct MixedBlocks {
  std::uint64_t mixed = 0, blocks = 0;
};
/// The same length for all numbers of mixed ones.
std::string ToText(const MixedBlocks& count);
std::optional<MixedBlocks> ParseMixedBlocks(std::string_view text);

}  // namespace passel

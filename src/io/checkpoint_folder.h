// checkpoint_folder.h - the checkpoints of one job: which there are, which to go on from, which to
// keep.
//
//   train_dir/checkpoint                                    the index (io/checkpoint_index.h)
//   train_dir/model.ckpt-5000.safetensors                   a checkpoint in one part, or
//   train_dir/model.ckpt-5000-00000-of-00003.safetensors    in several, one of each ps
//   train_dir/model.ckpt-4000.safetensors.corrupt           one that was found broken
//   train_dir/best                                          an index of one: the best by validation
//
// Everyone writes parts (WriteCheckedTensors() to PartPath()); then one process, which owns the
// folder, commits them: it writes the index last. So a set that the index does not name was never
// finished, and does not exist. All parts of a set have the same "save" in their metadata, a word
// that no other save has. While a set is written .owner has its name and that word: if its owner is
// killed, the next one deletes what it has left, and no set that somebody else has put there.
//
// A folder may lie on NFS: files are replaced by rename, nothing is mapped, and its owner is known
// by a lock (io/folder_owner.h).
//
// Threads    One thread at a time.
// Errors     Each sentence names the path.

#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "io/checkpoint_index.h"
#include "io/folder_owner.h"
#include "io/tensor_file.h"

namespace passel {

/// Metadata of every part.
inline constexpr const char* kSaveKey = "save";         ///< the same word in all parts of a set
inline constexpr const char* kPartKey = "part";         ///< "0" to one less than kPartsKey
inline constexpr const char* kPartsKey = "parts";       ///< "1" or more
inline constexpr const char* kStepKey = "global_step";  ///< the step of the set's name

inline constexpr int kMaxCheckpointParts = 99'999;

/// The file of one part. REQUIRES: 0 <= part < parts <= kMaxCheckpointParts.
std::string PartPath(const std::string& folder, std::int64_t step, int part, int parts);

/// The paths of all parts of a set, in order: of all sizes that it has files of, the one that is
/// complete. Nothing is read. Errors: kNotFound, naming what is missing.
Result<std::vector<std::string>> PartsOf(const std::string& folder, std::string_view name);

/// The names of all sets that have all their parts there, whether an index names them or not, by
/// step. Nothing is read. Errors: those of the system.
Result<std::vector<std::string>> CompleteSets(const std::string& folder);

/// Whether a folder of checkpoints has a file of this name for itself: an index, a part, .owner.
bool IsOfCheckpoints(std::string_view file);

/// All parts of a set, in order, once each was read and found whole. Errors: kNotFound; kDataLoss
/// for one that is broken, of another save or of another step; those of OpenCheckedTensors().
Result<std::vector<TensorFile>> OpenCheckpoint(const std::string& folder, std::string_view name);

/// The index, for who does not own the folder: nothing if it has none. Errors: kDataLoss.
Result<CheckpointIndex> ReadCheckpointIndex(const std::string& folder);

/// The name of the newest that it names; "none": it names none, or cannot be read.
std::string NewestCheckpointIn(const std::string& folder);

struct BestEntry {
  std::string name;                      ///< "model.ckpt-5000"
  std::optional<ValidationScore> score;  ///< that made it the best, if that is known
};
/// What MarkBest() was told last; nothing if it never was. Errors: kDataLoss.
Result<std::optional<BestEntry>> BestCheckpoint(const std::string& folder);

struct KeepPolicy {
  int keep = 5;                   ///< the newest; 0: all of them
  double keep_every_hours = 1e4;  ///< and one in so many hours for good
};

class CheckpointFolder {
 public:
  /// Makes the folder if there is none, and becomes its owner; what saves that were killed have
  /// left is deleted: temporary files, and parts that no index names. If nothing is ever written
  /// there, what was made for that goes with the owner. `now`: WallSeconds(). `job`:
  /// a word of at most 512 bytes in one line that all lives of one job have, and no other job; "":
  /// none. Errors: kAlreadyExists, naming the owner, if a process owns it that lives; kUnavailable
  /// if that said the same `job`; kDataLoss for a broken index; those of the system.
  static Result<CheckpointFolder> Own(const std::string& path, const KeepPolicy& policy, double now,
                                      FileOps& ops = FileOps::Real(), std::string_view job = {});

  const std::string& path() const { return path_; }
  const CheckpointIndex& index() const { return index_; }
  /// Of a set with that name, as people write it.
  std::string PathOf(std::string_view name) const;

  /// The newest set that is whole: nothing if the index names none. Those after it, which are
  /// broken, get the ending ".corrupt" and leave the index; a sentence about each is added to
  /// `warnings`. If none is whole all are put aside so, or nothing changes, as `none` says.
  /// Errors: kDataLoss in that case; those of the system.
  enum class NoneWhole { kIsAnError, kPutAside };
  Result<std::optional<std::string>> Newest(std::vector<std::string>* warnings,
                                            NoneWhole none = NoneWhole::kIsAnError);

  /// The complete sets that were there when the folder was owned, and that the index does not name:
  /// kept for good, or put there by somebody. By step. Errors: those of the system.
  Result<std::vector<std::string>> Unlisted() const;
  /// OK unless a set was there, under the name of that step, when the folder was owned, and still
  /// is: it would be lost. Errors: kAlreadyExists.
  Status CheckNameIsFree(std::int64_t step) const;

  /// OK while the folder at path() is this process's. One that was emptied meanwhile becomes its
  /// own again. Errors: kAlreadyExists if it has got another owner; kFailedPrecondition if it is
  /// another folder; those of the system. Commit() asks it too.
  Status CheckOwner();

  /// Before the parts of a set are written whose "save" is `save`. Commit() or GiveUp() follows.
  void BeginSave(std::int64_t step, std::string_view save);
  /// Deletes what there is of it. What a process of another host adds later goes with the next
  /// save.
  void GiveUp();

  /// After all `parts` of a set were written: looks whether they are there, complete and of one
  /// save, but reads no data; names them in the index, then deletes what is too old; the best is
  /// never that. Errors: those of CheckOwner(), OpenCheckpoint() and of writing: index() is as
  /// before then, or names the set if only fsync of the folder, or a deletion, failed.
  Status Commit(std::int64_t step, int parts, double now);

  /// Remembers a set of the index as the best one, with its score, and deletes the former best if
  /// nothing else keeps it. Errors: those of writing. REQUIRES: index().Find(name).
  Status MarkBest(const std::string& name, const ValidationScore& score);

 private:
  CheckpointFolder(std::string path, const KeepPolicy& policy, FolderOwner owner, FileOps& ops);
  Status Write(const char* file, const CheckpointIndex& index);
  Status Delete(const std::string& path);
  Status DeleteSet(const std::vector<std::string>& files, std::string_view name);
  Status DeleteUnfinished(std::string_view left);
  Status FindFormerSets();
  Status PutAside(std::size_t first);

  std::string path_;
  KeepPolicy policy_;
  FolderOwner owner_;
  FileOps* ops_;
  CheckpointIndex index_;
  std::string saving_;                 // BeginSave(): "model.ckpt-500 SAVE"
  std::vector<std::string> given_up_;  // likewise
  std::set<std::string> former_;       // complete, listed or the best when the folder was owned
};

/// OK if `bytes` and a reserve of 1 % are free where `folder` is. Errors: kResourceExhausted,
/// naming the bytes needed and free.
Status CheckFreeSpace(const std::string& folder, std::uint64_t bytes);

}  // namespace passel

// checkpoint_saver.h - the checkpoints of one job, in the process that leads it: `passel train`, or
// the chief of a job by hand. It owns the folder, knows what to go on from, and saves.
//
//   Open    owns the folder, finds the checkpoint to go on from
//   Begin   from now on a thread saves: at once if nothing is saved of this step, then by time and
//           steps
//   End     the last one, if training has gone on since
//
// job/checkpoint_save.h says how.
//
// A save that fails costs nothing but itself: what was saved before stays, training goes on, a
// warning says why and when the next one is tried (job/save_schedule.h).
//
// Threads    One thread at a time; it has one of its own.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "cluster/worker_names.h"
#include "io/checkpoint_folder.h"
#include "job/best_checkpoint.h"
#include "job/checkpoint_facts.h"
#include "job/checkpoint_save.h"
#include "job/job_config.h"
#include "job/other_parts.h"
#include "job/save_schedule.h"
#include "job/save_wishes.h"
#include "store/shard_memory.h"
#include "store/store_plan.h"

namespace passel::job {

class CheckpointSaver {
 public:
  /// With a folder: owns it, says in the log what was broken there, finds what to go on from, and
  /// checks that there is space; if the job has `begun`, so that its variables have values, it only
  /// owns it. `settings`, `data` (a JSON object): what checkpoints say of the
  /// job. REQUIRES: FitToData(&config). Another life of the job that owns the folder is waited for,
  /// 10 s or config.start_wait_ns. Errors: kAlreadyExists if another job owns the folder;
  /// kDeadlineExceeded if another life of this one still does;
  /// kInvalidArgument for a checkpoint of another model or optimizer; those of ChooseBeginning();
  /// kResourceExhausted; those of the file system.
  static Result<std::unique_ptr<CheckpointSaver>> Open(const JobConfig& config,
                                                       const JobSettings& settings,
                                                       const StorePlan& plan,
                                                       const std::string& data, bool begun = false);
  ~CheckpointSaver();

  /// The path of the checkpoint to go on from; "": none.
  const std::string& resume_from() const { return resume_from_; }
  /// A sentence about it for a report; "": none.
  const std::string& resumed() const { return resumed_; }
  /// A sentence if nothing is left to train after it; "": something is.
  const std::string& finished() const { return finished_; }
  /// The global step that the checkpoint had.
  std::int64_t resumed_step() const { return resumed_step_; }

  /// Logs what the job begins with, if that is a checkpoint. Of who is about to begin with it.
  void TellOfBeginning() const;

  /// All shards but the lead's are saved by `others` from now on: the shards of all calls below
  /// are the lead's alone then.
  void SaveWith(std::shared_ptr<OtherParts> others) { others_ = std::move(others); }
  /// Its thread also saves when that is wished for, and answers; what waits when it ends is for
  /// whoever saves next. A save that is under way may wait for who wishes: that is given up.
  void Heed(std::shared_ptr<SaveWishes> wishes);
  /// REQUIRES: the shards, the lead's first, have values; they outlive End().
  void Begin(std::vector<ShardMemory> shards, const WorkerNames& names);
  /// Ends the thread, whatever it is doing, then saves once more if there is something new. Without
  /// a folder or without Begin() nothing happens. `alive` is called often meanwhile, by this thread
  /// or by its own, never by both at once. Errors: those of that save; kDeadlineExceeded;
  /// kCancelled after GiveUp().
  Status End(AtEnd at_end, Deadline deadline, const std::function<void()>& alive = {});
  /// After End(): its thread waits in the kernel, for a disk that hangs. This saver, and the
  /// shards, must not be destroyed then: the end of the process is theirs.
  bool hangs() const { return hangs_; }
  /// As End(), and also without Begin(), where `shards` and `names` are as for that: what nobody
  /// trains any more (AtEnd::kNobodyTrains), or as while training (nothing).
  Status SaveOnce(std::vector<ShardMemory> shards, const WorkerNames& names,
                  std::optional<AtEnd> at_end, Deadline deadline,
                  const std::function<void()>& alive);
  /// Between Begin() and End(): saves now, unless the newest is of this step, and goes on as
  /// before. `at_end`, `alive`: as for SaveOnce(). Errors: as End().
  Status SaveNow(std::optional<AtEnd> at_end, Deadline deadline,
                 const std::function<void()>& alive);
  /// The step of the newest checkpoint of the folder. REQUIRES: nothing is being saved: SaveNow()
  /// has just returned OK.
  std::optional<std::int64_t> newest_step() const { return just_saved_; }
  /// After End() or SaveOnce(): that of the newest checkpoint, whoever made it.
  std::optional<std::int64_t> newest_after_end() const {
    return hangs_ ? std::nullopt : saved_step_;
  }
  /// The step of the one that End() or SaveOnce() has made; nothing: it made none.
  std::optional<std::int64_t> last_step() const { return hangs_ ? std::nullopt : last_step_; }
  /// After End(): the values of that global step have this accuracy on the validation images; the
  /// checkpoint of them may be the best. Waits for the disk no longer than `deadline`. REQUIRES:
  /// the shards are still there.
  void TakeScore(double accuracy, std::int64_t step, Deadline deadline);
  /// In place of End(): nothing more is saved. False: its thread has not ended yet, ask again; else
  /// as hangs().
  bool Leave(Deadline deadline);

  /// Of `alive`: the last checkpoint is not made, and what was there before stays.
  void GiveUp();

  /// What became of it all, after End().
  CheckpointFacts Facts() const;

 private:
  CheckpointSaver(const JobConfig& config, const JobSettings& settings, const StorePlan& plan,
                  const std::string& data);
  Status ChooseFirst();
  void GoOnSaving();
  // Those of a checkpoint that this job has no places for.
  std::vector<JobProgress::Worker> WorkersAway(const JobProgress& saved) const;
  void Start(std::function<void()> work);
  bool AwaitThread(Deadline deadline);
  void CallAlive();
  void SetAlive(std::function<void()> alive);
  Status EndThread(std::optional<AtEnd> at_end, Deadline deadline);
  void Run();
  void HeedWish();
  void Quit();
  void TellOfFailure(const Status& why, bool soon, std::chrono::nanoseconds pause) const;
  std::int64_t Step() const;
  Status SaveLast(std::optional<AtEnd> at_end, Deadline deadline);
  Status SaveAskedFor(const char* what, std::optional<AtEnd> at_end, Deadline deadline,
                      const std::atomic<bool>& quit);
  void ScheduleAfter(const Status& asked_for);
  void SayQuit();
  Status Save(std::optional<AtEnd> at_end, Deadline deadline, const std::atomic<bool>& quit);

  const JobConfig config_;
  const JobSettings settings_;
  const StorePlan plan_;
  const std::string data_;
  std::optional<CheckpointFolder> folder_;
  std::optional<BestCheckpointMarker> best_;  // with a folder
  std::string resume_from_, resumed_, finished_, other_kernels_;
  std::string begun_with_;  // Beginning::begun_with
  std::vector<JobProgress::Worker> away_;
  std::int64_t resumed_step_ = 0;
  std::optional<std::int64_t> saved_step_;
  std::optional<std::int64_t> just_saved_;  // saved_step_ after SaveNow()
  std::optional<std::int64_t> last_step_;   // of SaveLast()
  SaveSchedule schedule_;
  std::vector<ShardMemory> shards_;
  std::shared_ptr<OtherParts> others_;  // null: there are none
  std::shared_ptr<SaveWishes> wishes_;  // null: nobody wishes for any
  WorkerNames names_;
  CheckpointFacts facts_;  // its counts and times
  std::mutex alive_mutex_;
  std::function<void()> alive_;  // of End(), while that runs
  Status last_;                  // of the save of End()
  std::atomic<bool> quit_{false}, given_up_{false};
  std::atomic<bool> interrupted_{false};  // what is saved by time and steps: as quit_, or by a wish
  bool hangs_ = false;
  const char* asked_for_ = "the last checkpoint";  // what End() and the like save
  std::mutex mutex_;
  bool busy_ = false;  // the thread has not ended
  std::condition_variable wake_;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace passel::job

// locate.h - finds the training data, and gets it if need be.
//
// In this order, the first that applies:
//   1. what the user named (--data_dir): a directory or a file, in any format of formats.h
//                                                                unusable: an error, no fallback
//   2. $PASSEL_DATA_DIR, likewise                                unusable: an error, no fallback
//   3. a place where the program that is meant has its data, if a data set can be told there
//                                                                damaged: an error; none: a
//                                                                sentence
//   4. ../shared/data/mnist, if the four files are there
//   5. <cache>/mnist, if the four files are there
//   6. a download of MNIST to <cache>/mnist
//   7. <cache>/generated-digits-v1: digits drawn by a program, because the download failed
// <cache> is $XDG_CACHE_HOME/passel, or $HOME/.cache/passel.
//
// A failed download is not tried again for an hour, so that machines without a way out start as
// fast as others; the sentence that comes with the data says so each time.

#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "data/download.h"

namespace passel {

enum class DataOrigin {
  kArgument,
  kEnvironment,
  kUsual,
  kShared,
  kCache,
  kDownloaded,
  kGenerated,
  kFake,
};

struct DataLocation {
  std::string dir;    ///< for OpenData(): a directory or a file, checked by CheckData()
  DataOrigin origin;  ///< show `why` as a warning if kGenerated: it is not MNIST
  std::string why;    ///< which data is used, and why
};

struct LocateOptions {
  std::string data_dir;   ///< value of --data_dir; empty if it was not given
  std::string usual_dir;  ///< the third place; empty if there is none
  std::string usual_for;  ///< who has it there, for `why`: "preset dist-mnist"
  std::string shared_dir = "../shared/data/mnist";
  /// Also when one failed within the last hour, as for servers that the user named.
  bool always_download = false;
  /// False: where a download is needed and fails, that is an error.
  bool allow_generated = true;
  DownloadOptions download;
  std::uint32_t generated_train = 60'000;
  std::uint32_t generated_test = 10'000;
};

/// May take as long as a download (see DownloadOptions) or the drawing of digits (0.5 s).
/// Processes may call it at the same time. Reads the environment: not while another thread writes
/// it.
/// Errors: those of CheckData() for data that is there but unusable, whoever named it; those of
/// DownloadFiles(); kFailedPrecondition without XDG_CACHE_HOME and HOME, or when nothing can be put
/// there, where a cache is needed.
Result<DataLocation> LocateData(const LocateOptions& options);

/// For --download_only: makes sure that real data is there, and reads none of it. Like
/// LocateData(), but never draws digits; and where data_dir is given and holds no data, or not all
/// of it, it is made and MNIST is downloaded into it. Errors: as LocateData(); those of
/// DownloadFiles() when there is no way out.
Result<DataLocation> EnsureData(const LocateOptions& options);

/// <cache>, which need not exist. Errors: kFailedPrecondition.
Result<std::string> DataCacheDir();

}  // namespace passel

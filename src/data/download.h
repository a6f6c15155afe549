// download.h - fetches the four files of MNIST over HTTP and keeps only what is genuine.
//
// Every file is checked against its SHA-256 before it appears under its name, and appears whole or
// not at all. Every wait is bounded: connecting, a server that falls silent, and the whole file.
//
// libcurl is loaded when a download is asked for, not linked: it pulls in 30 libraries, which cost
// every start of the program 5 to 10 ms (medians of 300 and 60 starts), and most starts download
// nothing. Where it is not installed a download fails with kUnavailable and says so.
//
// Errors     kUnavailable (no connection, HTTP error, no libcurl); kDeadlineExceeded (one of the
//            bounds above); kNotFound (HTTP 404, 410); kDataLoss (cut off, too long, wrong sum).

#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace passel {

/// One file of a data set on a server.
struct RemoteFile {
  std::string name;         ///< appended to the base URL, and the name on disk
  std::string sha256;       ///< lower-case hexadecimal
  std::uint64_t bytes = 0;  ///< not one more is accepted
};

using RemoteFiles = std::array<RemoteFile, 4>;

/// MNIST as its authors compressed it.
const RemoteFiles& MnistFiles();

inline constexpr const char* kMnistUrl = "https://storage.googleapis.com/cvdf-datasets/mnist/";

struct DownloadOptions {
  std::string base_url = kMnistUrl;  ///< as CheckDownloadUrl() wants it
  /// More of them: each file comes from the first server that has it.
  std::vector<std::string> mirrors;
  RemoteFiles files = MnistFiles();
  std::chrono::milliseconds connect_timeout{3'000};  ///< name resolution included
  std::chrono::milliseconds stall_timeout{10'000};   ///< without a single byte; seen within 1 s
  std::chrono::milliseconds file_timeout{120'000};   ///< for one whole file
  mode_t folder_mode = 0700;                         ///< of folders that are made, before the umask
  /// Gets "Successfully downloaded <name> <size> bytes." for each file. Empty: nobody is told.
  std::function<void(const std::string&)> on_line;
};

/// Errors: kInvalidArgument unless `url` is http:// or https://, a host, perhaps a port, and a path
/// that names of files can follow: nobody's password, no query, no white space.
Status CheckDownloadUrl(std::string_view url);

/// Puts the files that are not in `dir` yet, plain or gzip, there. Creates `dir`. Existing files
/// are neither fetched nor checked. On error the files that were complete by then stay: the next
/// call goes on from there. Folders that it made and that are empty are removed.
Status DownloadFiles(const std::string& dir, const DownloadOptions& options);

/// SHA-256 as lower-case hexadecimal.
std::string Sha256Hex(std::span<const std::byte> bytes);

/// mkdir -p; `mode` of each folder that is made, before the umask.
Status MakeDirectories(const std::string& dir, mode_t mode = 0700);

}  // namespace passel

// output.h - standard output and standard error of a program that must not wait for their readers.
//
// A training job goes on, ends and answers whatever becomes of the terminal or the pipe behind its
// output: text that cannot be written at once is kept, up to kMaxKeptBytes for each stream, and
// written by a thread of its own as soon as somebody reads; more is dropped in whole pieces, and a
// line says how many. Standard output first waits a tenth of a second for a reader that is slow. A
// stream without a reader (EPIPE, a terminal that is gone) swallows what is written to it. Whoever
// uses these functions ignores SIGPIPE, and uses no stdio on these streams.
//
// Thread safe. Pieces of up to 4 KiB (PIPE_BUF) from several processes with one pipe do not mix.

#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

namespace passel {

enum class Stream { kOut = 1, kErr = 2 };

inline constexpr std::size_t kMaxKeptBytes = std::size_t{1} << 20;

/// Opens /dev/null as each of the descriptors 0 to 2 that is closed: otherwise the next file or
/// socket would get that number and everything meant for a standard stream. The first act of a
/// program.
void OpenMissingStreams();

/// Writes whole lines, each with its line feed. Waits for nobody; kOut: once for 100 ms, if
/// kMaxKeptBytes are kept, until the reader is heard of again.
void Write(Stream stream, std::string_view lines);

/// Waits until all is written, as long as the reader takes something every `patience`. 0, or the
/// errno of the first write to this stream that failed: EPIPE or EIO for a reader that is gone;
/// ETIMEDOUT if the reader took nothing for `patience`.
int FlushOutput(Stream stream, std::chrono::nanoseconds patience);

/// Draws `text`, less than a terminal's line, over the last line of the terminal that standard
/// error is. Other output removes it first. Left out where it cannot be written at once.
void ShowLiveLine(std::string_view text);
/// Removes it, if there is one.
void EndLiveLine();

}  // namespace passel

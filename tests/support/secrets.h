// secrets.h - to look for a secret where it must not be.

#pragma once

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <sstream>
#include <string>

#include "base/file_descriptor.h"
#include "support/program.h"

namespace passel::testing {

/// As a log or a JSON text would show it.
inline std::string Hex(const std::string& bytes) {
  std::string text;
  for (const unsigned char c : bytes) text += fmt::format("{:02x}", c);
  return text;
}

/// What a process can read: `dumped` is what a core file of it would have, `kept_out` what is
/// marked "dd" (MADV_DONTDUMP).
struct Memory {
  std::string dumped, kept_out;
};

/// Mappings of more than 64 MiB are left out. Needs the right to trace the process.
inline Memory ReadMemory(pid_t pid) {
  Memory memory;
  FileDescriptor mem(::open(fmt::format("/proc/{}/mem", pid).c_str(), O_RDONLY));
  std::istringstream lines(ReadText(fmt::format("/proc/{}/smaps", pid)));
  unsigned long begin = 0, end = 0;
  for (std::string line; std::getline(lines, line);) {
    char access[5];
    unsigned long from, to;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &from, &to, access) == 3) {
      begin = from;
      end = access[0] == 'r' ? to : from;
    } else if (line.starts_with("VmFlags:") && end - begin <= (std::size_t{64} << 20)) {
      std::string bytes(end - begin, '\0');
      const ssize_t got = ::pread(mem.get(), bytes.data(), bytes.size(), static_cast<off_t>(begin));
      bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
      (line.find(" dd") != std::string::npos ? memory.kept_out : memory.dumped) += bytes;
    }
  }
  return memory;
}

}  // namespace passel::testing

// instructions_memory.cc - memcpy, memmove and memset of passel_instructions alone.
//
// libc has several of each and chooses by the processor, so that its instructions cannot be
// compared between machines. These are always the same. Plain loops; the file is compiled without
// the transformation that would make calls to memcpy of them again.

#include <cstddef>

extern "C" {

void* memcpy(void* __restrict to, const void* __restrict from, std::size_t bytes);
void* memmove(void* to, const void* from, std::size_t bytes);
void* memset(void* to, int value, std::size_t bytes);

void* memcpy(void* __restrict to, const void* __restrict from, std::size_t bytes) {
  auto* const target = static_cast<unsigned char*>(to);
  const auto* const source = static_cast<const unsigned char*>(from);
  for (std::size_t i = 0; i < bytes; ++i) target[i] = source[i];
  return to;
}

void* memmove(void* to, const void* from, std::size_t bytes) {
  auto* const target = static_cast<unsigned char*>(to);
  const auto* const source = static_cast<const unsigned char*>(from);
  if (target <= source || target >= source + bytes) {
    for (std::size_t i = 0; i < bytes; ++i) target[i] = source[i];
  } else {
    for (std::size_t i = bytes; i > 0; --i) target[i - 1] = source[i - 1];
  }
  return to;
}

void* memset(void* to, int value, std::size_t bytes) {
  auto* const target = static_cast<unsigned char*>(to);
  for (std::size_t i = 0; i < bytes; ++i) target[i] = static_cast<unsigned char>(value);
  return to;
}
}

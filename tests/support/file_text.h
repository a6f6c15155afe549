// file_text.h - whole files as texts, whatever bytes they have.

#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace passel::test {

inline std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void PutFileText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace passel::test

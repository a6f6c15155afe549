// safetensors_helpers.h - builds safetensors files by hand and judges what the reader made of them.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace passel::test {

using Bytes = std::vector<std::uint8_t>;

inline std::span<const std::byte> AsBytes(const Bytes& bytes) {
  return std::as_bytes(std::span(bytes));
}

/// N, then `header` as it is, then `data`.
inline Bytes FileOf(std::uint64_t n, std::string_view header, std::string_view data = {}) {
  Bytes file(8 + header.size() + data.size());
  std::memcpy(file.data(), &n, 8);
  std::copy(header.begin(), header.end(), file.begin() + 8);
  std::copy(data.rbegin(), data.rend(), file.rbegin());
  return file;
}
inline Bytes FileOf(std::string_view header, std::string_view data = {}) {
  return FileOf(header.size(), header, data);
}

/// Judges an accepted file with a JSON library and 128-bit arithmetic, independently of the reader.
/// Returns "" or the first rule that is broken.
inline std::string BrokenRule(std::span<const std::byte> bytes, const SafetensorsFile& file) {
  __extension__ using Wide = unsigned __int128;
  using Json = nlohmann::json;
  if (bytes.size() < 10) return "too short";
  std::uint64_t n = 0;
  std::memcpy(&n, bytes.data(), 8);
  if (n < 2 || n > kSafetensorsMaxHeaderBytes || n > bytes.size() - 8) return "N";
  const std::string text(reinterpret_cast<const char*>(bytes.data()) + 8, n);
  if (text[0] != '{') return "first byte";
  if (text[text.find_last_not_of(' ')] != '}') return "last byte";

  bool duplicate = false;
  int deepest = 0;
  std::vector<std::set<std::string>> keys;
  const Json::parser_callback_t watch = [&](int depth, Json::parse_event_t event, Json& value) {
    deepest = std::max(deepest, depth);
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      duplicate |= !keys.back().insert(value.get<std::string>()).second;
    }
    return true;
  };
  const Json header = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object()) return "not JSON";
  if (duplicate) return "duplicate key";
  if (deepest > 4) return "depth";

  const std::size_t data_bytes = bytes.size() - 8 - n;
  const std::byte* const data = bytes.data() + 8 + n;
  std::size_t tensors = 0;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object() || entry.size() != file.metadata.size()) return "metadata";
      for (const auto& [key, value] : entry.items()) {
        const auto found = file.metadata.find(key);
        if (found == file.metadata.end() || !value.is_string() || found->second != value) {
          return "metadata entry";
        }
      }
      continue;
    }
    ++tensors;
    if (name.size() > 256) return "name length";
    for (const char c : name) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return "control character in name";
    }
    if (!entry.is_object() || entry.size() != 3) return "entry";
    const TensorView* const tensor = file.Find(name);
    if (!tensor) return "tensor is missing: " + name;
    if (entry.at("dtype") != std::string(DTypeName(tensor->dtype))) return "dtype";
    if (entry.at("shape").size() != tensor->shape.size() || tensor->shape.size() > 8) return "rank";
    Wide bits = static_cast<Wide>(8 * DTypeBytes(tensor->dtype));
    for (std::size_t i = 0; i < tensor->shape.size(); ++i) {
      const Json& size = entry.at("shape")[i];
      if (!size.is_number_unsigned() || tensor->shape[i] < 0) return "dimension";
      if (size.get<std::uint64_t>() != static_cast<std::uint64_t>(tensor->shape[i])) return "shape";
      bits *= static_cast<std::uint64_t>(tensor->shape[i]);
      if (bits >> 64 != 0) return "product";
    }
    const Json& offsets = entry.at("data_offsets");
    if (offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      return "offsets";
    }
    const auto begin = offsets[0].get<std::uint64_t>();
    const auto end = offsets[1].get<std::uint64_t>();
    if (begin > end || end > data_bytes) return "range";
    if (bits != static_cast<Wide>(end - begin) * 8) return "bytes of the shape";
    if (tensor->data.data() != data + begin || tensor->data.size() != end - begin) return "view";
  }
  if (tensors != file.tensors.size() || tensors > kSafetensorsMaxTensors)
    return "number of tensors";
  if (!header.contains("__metadata__") && !file.metadata.empty()) return "invented metadata";
  const std::byte* next = data;  // the tensors come in the order of their data
  for (const TensorView& tensor : file.tensors) {
    if (tensor.data.data() != next) return "gap or overlap";
    next += tensor.data.size();
  }
  return next == data + data_bytes ? "" : "end of file";
}

}  // namespace passel::test

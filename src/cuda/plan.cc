#include "cuda/plan.h"

#include <utility>

namespace passel::cuda {
namespace {

bool Overlap(const Bytes& a, const Bytes& b) {
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.begin);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.begin);
  return a.size != 0 && b.size != 0 && a_begin < b_begin + b.size && b_begin < a_begin + a.size;
}

bool Overlap(const std::vector<Bytes>& a, const std::vector<Bytes>& b) {
  for (const Bytes& x : a) {
    for (const Bytes& y : b) {
      if (Overlap(x, y)) return true;
    }
  }
  return false;
}

// Two operations that touch the same bytes, one of them writing, keep their order.
bool Conflict(const Node& a, const Node& b) {
  if (std::holds_alternative<LargeGemm>(a.operation) &&
      std::holds_alternative<LargeGemm>(b.operation)) {
    return true;  // one workspace for all of them
  }
  return Overlap(a.writes, b.writes) || Overlap(a.writes, b.reads) || Overlap(a.reads, b.writes);
}

}  // namespace

std::string_view EpilogueName(LargeGemm::Epilogue epilogue) {
  switch (epilogue) {
    case LargeGemm::Epilogue::kNone:
      break;
    case LargeGemm::Epilogue::kBias:
      return "BIAS";
    case LargeGemm::Epilogue::kBiasRelu:
      return "RELU_BIAS";
  }
  return "DEFAULT";
}

int Plan::Add(std::string name, Operation operation, std::vector<Bytes> reads,
              std::vector<Bytes> writes) {
  const int number = static_cast<int>(nodes_.size());
  Node node{std::move(name), operation, std::move(reads), std::move(writes), {}};
  std::vector<bool> waits(nodes_.size());
  // Latest first: whatever an operation waits for already needs no edge of its own.
  for (int earlier = number; earlier-- > 0;) {
    const auto e = static_cast<std::size_t>(earlier);
    if (waits[e] || !Conflict(nodes_[e], node)) continue;
    node.after.insert(node.after.begin(), earlier);
    waits[e] = true;
    for (std::size_t i = 0; i < e; ++i) {
      if (waits_[e][i]) waits[i] = true;
    }
  }
  nodes_.push_back(std::move(node));
  waits_.push_back(std::move(waits));
  return number;
}

bool Plan::Waits(int node, int earlier) const {
  return earlier < node &&
         waits_[static_cast<std::size_t>(node)][static_cast<std::size_t>(earlier)];
}

}  // namespace passel::cuda

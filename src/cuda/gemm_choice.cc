#include "cuda/gemm_choice.h"

namespace passel::cuda {
namespace {

constexpr unsigned kEnoughBlocks = 66;  // half of 132 multiprocessors

template <typename Tile>
unsigned BlocksOf(const GemmArguments& arguments) {
  return GemmKernel<Tile>{arguments}.grid().blocks_x;
}

template <typename Tile>
AnyKernel WithTile(const GemmArguments& arguments) {
  if (arguments.update.rate != nullptr) return GemmKernel<Tile, true>{arguments};
  return GemmKernel<Tile>{arguments};
}

}  // namespace

bool NeedsLibraryGemm(std::size_t batch, std::size_t inputs, std::size_t outputs) {
  const std::size_t weights = inputs * outputs;
  return weights > kMostOwnWeights || (batch != 0 && weights > kMostOwnMultiplications / batch);
}

AnyKernel ChooseGemm(const GemmArguments& arguments) {
  if (BlocksOf<LargeTile>(arguments) >= kEnoughBlocks) return WithTile<LargeTile>(arguments);
  if (BlocksOf<MediumTile>(arguments) >= kEnoughBlocks) return WithTile<MediumTile>(arguments);
  return WithTile<SmallTile>(arguments);
}

}  // namespace passel::cuda

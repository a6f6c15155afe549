#include "cuda/layer_products.h"

#include <fmt/format.h>

#include <vector>

#include "cuda/gemm_choice.h"

namespace passel::cuda {
namespace {

bool IsLarge(const StepEngineOptions& options, std::size_t layer) {
  const NetworkShape::Layer& l = options.network.layers[layer];
  return NeedsLibraryGemm(options.batch_size, l.inputs, l.outputs);
}

template <typename Wanted>
std::vector<std::size_t> LayersThat(const StepEngineOptions& options, Wanted wanted) {
  std::vector<std::size_t> layers;
  for (std::size_t l = 0; l < options.network.layers.size(); ++l) {
    if (wanted(options, l)) layers.push_back(l);
  }
  return layers;
}

// "layer 1", "layers 0, 2".
std::string Names(const std::vector<std::size_t>& layers) {
  return fmt::format("layer{} {}", layers.size() == 1 ? "" : "s", fmt::join(layers, ", "));
}

// As --math names it.
std::string_view MathName(MathMode math) {
  switch (math) {
    case MathMode::kFloat32:
      break;
    case MathMode::kTf32:
      return "tf32";
    case MathMode::kBfloat16:
      return "bfloat16";
  }
  return "float32";
}

bool WeCompute(const StepEngineOptions& options, std::size_t layer) {
  return !LibraryComputes(options, layer);
}

}  // namespace

bool LibraryComputes(const StepEngineOptions& options, std::size_t layer) {
  return options.library && IsLarge(options, layer);
}

Status DoWithoutMissingLibrary(Device& device, StepEngineOptions* options,
                               const std::function<void(std::string_view)>& warn) {
  const std::vector<std::size_t> large = LayersThat(*options, IsLarge);
  if (!options->library || large.empty()) return {};
  PASSEL_ASSIGN_OR_RETURN(const Device::Library library, device.HasLibrary());
  if (library.there) return {};
  options->library = false;
  if (warn) {
    warn(fmt::format("kernels of passel's own compute {}, which cuBLAS would do faster: {}",
                     Names(large), library.why_not));
  }
  return {};
}

std::string FloatThoughNotAsked(const StepEngineOptions& options) {
  const std::vector<std::size_t> own = LayersThat(options, WeCompute);
  if (options.math == MathMode::kFloat32 || own.empty()) return "";
  const std::string why = options.library
                              ? fmt::format(
                                    "computes those with more than {} weights, or more than {} "
                                    "multiplications in a step",
                                    kMostOwnWeights, kMostOwnMultiplications)
                              : "is missing";
  return fmt::format(
      "--math {} has no effect on {}, computed in float32: only cuBLASLt has {}, and "
      "it {}",
      MathName(options.math), Names(own), MathName(options.math), why);
}

std::string DescribeMath(const StepEngineOptions& options) {
  if (options.math == MathMode::kFloat32) return "";
  const std::vector<std::size_t> library = LayersThat(options, LibraryComputes),
                                 own = LayersThat(options, WeCompute);
  std::string text;
  if (!library.empty()) text += fmt::format(", {} in {}", MathName(options.math), Names(library));
  if (!own.empty()) text += fmt::format(", float32 in {}", Names(own));
  return text;
}

std::string DescribeLibrary(const StepEngineOptions& options) {
  const std::vector<std::size_t> large = LayersThat(options, IsLarge);
  if (large.empty()) return "";
  return options.library ? fmt::format(" and cuBLASLt ({})", Names(large))
                         : fmt::format(" ({} without cuBLASLt)", Names(large));
}

}  // namespace passel::cuda

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

std::vector<std::size_t> LargeLayers(const StepEngineOptions& options) {
  std::vector<std::size_t> layers;
  for (std::size_t l = 0; l < options.network.layers.size(); ++l) {
    if (IsLarge(options, l)) layers.push_back(l);
  }
  return layers;
}

// "layer 1", "layers 0, 2".
std::string Names(const std::vector<std::size_t>& layers) {
  return fmt::format("layer{} {}", layers.size() == 1 ? "" : "s", fmt::join(layers, ", "));
}

}  // namespace

bool LibraryComputes(const StepEngineOptions& options, std::size_t layer) {
  return options.library && IsLarge(options, layer);
}

Status DoWithoutMissingLibrary(Device& device, StepEngineOptions* options,
                               const std::function<void(std::string_view)>& warn) {
  const std::vector<std::size_t> large = LargeLayers(*options);
  if (!options->library || large.empty()) return {};
  PASSEL_ASSIGN_OR_RETURN(const Device::Verdict has, device.HasLibrary());
  if (has.can) return {};
  options->library = false;
  if (warn) {
    warn(fmt::format("kernels of passel's own compute {}, which cuBLAS would do faster: {}",
                     Names(large), has.text));
  }
  return {};
}

std::string DescribeMissingLibrary(const StepEngineOptions& options) {
  const std::vector<std::size_t> large = LargeLayers(options);
  if (options.library || large.empty()) return "";
  return fmt::format(" ({} without cuBLASLt)", Names(large));
}

}  // namespace passel::cuda

#include "bench/products/shapes.h"

#include <fmt/core.h>

namespace passel::bench {
namespace {

std::size_t ToLines(std::size_t floats) { return (floats + 15) / 16 * 16; }

}  // namespace

Product Shape::ToProduct() const {
  // Ten classes are the last layer, whose logits are dense.
  const std::size_t x = ToLines(inputs), y = outputs == 10 ? outputs : ToLines(outputs);
  Product p;
  switch (role) {
    case Role::kForward:  // y (batch, outputs) = x w
      p.m = batch, p.n = outputs, p.k = inputs;
      p.lda = x, p.ldb = outputs, p.ldc = y;
      break;
    case Role::kWeights:  // dw (inputs, outputs) = x' dy
      p.transpose_a = true;
      p.m = inputs, p.n = outputs, p.k = batch;
      p.lda = x, p.ldb = y, p.ldc = outputs;
      break;
    case Role::kInputs:  // dx (batch, inputs) = dy w'
      p.transpose_b = true;
      p.m = batch, p.n = inputs, p.k = outputs;
      p.lda = y, p.ldb = outputs, p.ldc = x;
      break;
  }
  return p;
}

double Shape::Flops() const {
  return 2.0 * static_cast<double>(batch) * static_cast<double>(inputs) *
         static_cast<double>(outputs);
}

std::string Shape::Name() const {
  const char* const roles[] = {"forward", "weights", "inputs"};
  return fmt::format("{}-{} b{} {}", inputs, outputs, batch, roles[static_cast<int>(role)]);
}

std::vector<Shape> Shapes(bool tiny) {
  struct Layer {
    std::size_t inputs, outputs;
  };
  const std::vector<Layer> layers =
      tiny ? std::vector<Layer>{{20, 10}, {100, 64}}
           : std::vector<Layer>{{784, 10},    {100, 10},   {784, 100},  {128, 128},
                                {784, 512},   {512, 512},  {784, 1024}, {1024, 1024},
                                {2048, 2048}, {784, 4096}, {4096, 4096}};
  const std::vector<std::size_t> batches =
      tiny ? std::vector<std::size_t>{7} : std::vector<std::size_t>{1, 10, 100, 256, 1024};
  std::vector<Shape> shapes;
  for (const Layer& layer : layers) {
    for (const std::size_t batch : batches) {
      for (const auto role : {Shape::Role::kForward, Shape::Role::kWeights, Shape::Role::kInputs}) {
        // Nothing needs the gradient of the pixels.
        if (role == Shape::Role::kInputs && layer.inputs == 784) continue;
        shapes.push_back({role, layer.inputs, layer.outputs, batch});
      }
    }
  }
  return shapes;
}

}  // namespace passel::bench

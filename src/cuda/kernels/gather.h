// gather.h - the examples of a batch, out of the data set that lies on the GPU.

#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kernel.h"
#include "cuda/kernels/quad.h"

namespace passel::cuda {

/// out[b, i] = float(pixels[indices[b], i]) * (1.f / 255); labels_out[b] = labels[indices[b]].
/// REQUIRES: every index is a row of the data set.
struct GatherKernel {
  static constexpr unsigned kThreads = 128;
  static constexpr unsigned kChunk = 16;  // pixels of one thread: 128 bits

  const std::uint8_t* pixels = nullptr;    ///< (rows of the data set, cols), dense
  const std::uint8_t* labels = nullptr;    ///< (rows of the data set)
  const std::uint32_t* indices = nullptr;  ///< (batch)
  std::uint32_t batch = 0;
  std::uint32_t cols = 0;
  float* out = nullptr;  ///< (batch, cols)
  std::size_t ld = 0;    ///< floats from row to row of out
  std::uint8_t* labels_out = nullptr;
  bool quads = false;  ///< whole chunks at aligned addresses: see MakeGather()

  struct Shared {};
  struct Private {};
  Grid grid() const { return {Blocks(std::size_t{batch} * ChunksPerRow(), kThreads), 1, kThreads}; }
  PASSEL_KERNEL unsigned phases() const { return 1; }

  PASSEL_KERNEL void Phase(unsigned, ThreadPlace at, Shared&, Private&) const {
    const std::size_t item = std::size_t{at.block_x} * kThreads + at.thread;
    const std::uint32_t chunks = ChunksPerRow();
    const std::size_t b = item / chunks;
    if (b >= batch) return;
    const std::uint32_t chunk = static_cast<std::uint32_t>(item % chunks);
    const std::size_t row = indices[b];
    if (chunk == 0) labels_out[b] = labels[row];
    const std::uint32_t first = chunk * kChunk;
    const std::uint8_t* from = pixels + row * cols + first;
    float* to = out + b * ld + first;
    if (quads) {
      std::uint32_t words[4];
      LoadWords(from, words);
      PASSEL_UNROLL
      for (unsigned w = 0; w < 4; ++w) {
        const float scaled[4] = {Scaled(words[w] & 255), Scaled(words[w] >> 8 & 255),
                                 Scaled(words[w] >> 16 & 255), Scaled(words[w] >> 24)};
        StoreQuad(to + std::size_t{4} * w, scaled);
      }
    } else {
      for (std::uint32_t i = 0; i < kChunk && first + i < cols; ++i) to[i] = Scaled(from[i]);
    }
  }

 private:
  // At least one, so that labels are gathered where there are no pixels.
  PASSEL_KERNEL std::uint32_t ChunksPerRow() const {
    return cols <= kChunk ? 1 : (cols + kChunk - 1) / kChunk;
  }
  static PASSEL_KERNEL float Scaled(std::uint32_t pixel) {
    return static_cast<float>(pixel) * (1.f / 255);
  }
  static PASSEL_KERNEL void LoadWords(const std::uint8_t* from, std::uint32_t (&to)[4]) {
#if defined(__CUDA_ARCH__)
    const uint4 v = *reinterpret_cast<const uint4*>(from);
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
#else
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "as on every GPU");
    std::memcpy(to, __builtin_assume_aligned(from, 16), sizeof to);
#endif
  }
};

/// The kernel with `quads` set where sizes and addresses allow it.
inline GatherKernel MakeGather(GatherKernel kernel) {
  kernel.quads = kernel.cols % GatherKernel::kChunk == 0 && kernel.cols != 0 &&
                 reinterpret_cast<std::uintptr_t>(kernel.pixels) % 16 == 0 &&
                 QuadsAllowed(kernel.out, kernel.ld);
  return kernel;
}

}  // namespace passel::cuda

// Direct two-dimensional convolution: each thread computes kTile x kTile neighbouring outputs of
// one channel from a window held in registers, with the filter (kSize x kSize) in constant
// positions of the code.
#ifndef EXAMPLES_CUDA_CONVOLUTION_CUH_
#define EXAMPLES_CUDA_CONVOLUTION_CUH_

#include "common.cuh"

namespace kernels {

enum class Border { kZero, kClamp };

template <typename T, int Size, int Stride, int Tile, Border Mode>
__global__ void ConvolutionKernel(const T* __restrict__ image, const T* __restrict__ filters,
                                  T* __restrict__ result, int height, int width, int channels) {
  using Sum = Accumulator<T>;
  constexpr int kWindow = (Tile - 1) * Stride + Size;
  const int col0 = (blockIdx.x * blockDim.x + threadIdx.x) * Tile;
  const int row0 = (blockIdx.y * blockDim.y + threadIdx.y) * Tile;
  const int filter = blockIdx.z;
  const int out_width = width / Stride;
  const int out_height = height / Stride;
  if (col0 >= out_width || row0 >= out_height) return;

  Sum sums[Tile][Tile] = {};
  for (int channel = 0; channel < channels; ++channel) {
    Sum window[kWindow][kWindow];
    const T* plane = image + static_cast<std::size_t>(channel) * height * width;
    Unroll<kWindow>([&](auto y) {
      Unroll<kWindow>([&](auto x) {
        int row = row0 * Stride + y - Size / 2;
        int col = col0 * Stride + x - Size / 2;
        if constexpr (Mode == Border::kClamp) {
          row = min(max(row, 0), height - 1);
          col = min(max(col, 0), width - 1);
          window[y][x] = Load(plane[row * width + col]);
        } else {
          const bool inside = row >= 0 && row < height && col >= 0 && col < width;
          window[y][x] = inside ? Load(plane[row * width + col]) : Sum(0);
        }
      });
    });
    const T* weights =
        filters + (static_cast<std::size_t>(filter) * channels + channel) * Size * Size;
    Unroll<Size>([&](auto y) {
      Unroll<Size>([&](auto x) {
        const Sum weight = Load(weights[y * Size + x]);
        Unroll<Tile>([&](auto i) {
          Unroll<Tile>(
              [&](auto j) { sums[i][j] += weight * window[i * Stride + y][j * Stride + x]; });
        });
      });
    });
  }
  T* plane = result + static_cast<std::size_t>(filter) * out_height * out_width;
  Unroll<Tile>([&](auto i) {
    Unroll<Tile>([&](auto j) {
      const int row = row0 + i;
      const int col = col0 + j;
      if (row < out_height && col < out_width) plane[row * out_width + col] = Store<T>(sums[i][j]);
    });
  });
}

template <typename T, int Size, int Stride, int Tile, Border Mode>
void RunConvolution(const Workspace& workspace) {
  constexpr int kImage = 128;
  constexpr int kChannels = 8;
  constexpr int kFilters = 8;
  const dim3 block(16, 8);
  const int tiles = kImage / Stride / Tile;
  const dim3 grid((tiles + block.x - 1) / block.x, (tiles + block.y - 1) / block.y, kFilters);
  ConvolutionKernel<T, Size, Stride, Tile, Mode>
      <<<grid, block>>>(static_cast<const T*>(workspace.in), static_cast<const T*>(workspace.other),
                        static_cast<T*>(workspace.out), kImage, kImage, kChannels);
}

template <typename T, int Size, int Stride, int... Tile>
void AddConvolution(Registry& registry, IntList<Tile...> tiles) {
  ForEachInt(tiles, [&](auto tile) {
    constexpr int kTile = decltype(tile)::value;
    const std::string name = TypeName<T>() + "_" + std::to_string(Size) + "x" +
                             std::to_string(Size) + "_s" + std::to_string(Stride) + "_t" +
                             std::to_string(kTile);
    registry.Add("convolution", name + "_zero",
                 RunConvolution<T, Size, Stride, kTile, Border::kZero>);
    registry.Add("convolution", name + "_clamp",
                 RunConvolution<T, Size, Stride, kTile, Border::kClamp>);
  });
}

}  // namespace kernels

#endif  // EXAMPLES_CUDA_CONVOLUTION_CUH_

// Stencils: a point becomes a weighted sum of its neighbours up to kRadius away. In two dimensions
// with all neighbours (box) or those on the axes (star); in three with a star that marches along z
// and keeps the planes it needs in a queue of registers. Several time steps are fused in one
// kernel.
#ifndef EXAMPLES_CUDA_STENCIL_CUH_
#define EXAMPLES_CUDA_STENCIL_CUH_

#include "common.cuh"

namespace kernels {

// Weights that fall with the distance; powers of two, so that they are exact in every type.
__host__ __device__ constexpr double StencilWeight(int distance) {
  double weight = 0.5;
  for (int i = 0; i < distance; ++i) weight *= 0.25;
  return weight;
}

struct Box {
  static constexpr const char* kName = "box";
  __host__ __device__ static constexpr bool Contains(int, int) { return true; }
};
struct Star {
  static constexpr const char* kName = "star";
  __host__ __device__ static constexpr bool Contains(int y, int x) { return y == 0 || x == 0; }
};

__host__ __device__ constexpr int Magnitude(int x) {
  return x < 0 ? -x : x;
}

template <typename T, typename Shape, int Radius, int Rows>
__global__ void Stencil2dKernel(const T* __restrict__ in, T* __restrict__ out, int height,
                                int width) {
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  const int row0 = (blockIdx.y * blockDim.y + threadIdx.y) * Rows;
  if (col < Radius || col >= width - Radius) return;
  // A column of Rows outputs shares the rows that it reads.
  T rows[Rows + 2 * Radius][2 * Radius + 1];
  Unroll<Rows + 2 * Radius>([&](auto y) {
    const int row = min(max(row0 + y - Radius, 0), height - 1);
    Unroll<2 * Radius + 1>([&](auto x) { rows[y][x] = in[row * width + col + x - Radius]; });
  });
  Unroll<Rows>([&](auto i) {
    T sum = T(0);
    Unroll<2 * Radius + 1>([&](auto y) {
      Unroll<2 * Radius + 1>([&](auto x) {
        constexpr int kY = decltype(y)::value - Radius;
        constexpr int kX = decltype(x)::value - Radius;
        if constexpr (Shape::Contains(kY, kX)) {
          constexpr double kWeight = StencilWeight(Magnitude(kY) + Magnitude(kX));
          sum += T(kWeight) * rows[i + y][x];
        }
      });
    });
    const int row = row0 + i;
    if (row < height) out[row * width + col] = sum;
  });
}

template <typename T, int Radius, int Depth>
__global__ void Stencil3dKernel(const T* __restrict__ in, T* __restrict__ out, int nz, int ny,
                                int nx) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < Radius || x >= nx - Radius || y < Radius || y >= ny - Radius) return;
  const int plane = ny * nx;
  const T* centre = in + y * nx + x;
  T queue[2 * Radius + Depth];
  Unroll<2 * Radius>([&](auto i) { queue[i] = centre[i * plane]; });
  for (int z = Radius; z + Radius + Depth <= nz; z += Depth) {
    Unroll<Depth>([&](auto d) { queue[2 * Radius + d] = centre[(z + Radius + d) * plane]; });
    Unroll<Depth>([&](auto d) {
      constexpr double kCentre = StencilWeight(0);
      const T* at = centre + (z + d) * plane;
      T sum = T(kCentre) * queue[Radius + d];
      Unroll<Radius>([&](auto r) {
        constexpr int kDistance = decltype(r)::value + 1;
        constexpr double kWeight = StencilWeight(kDistance);
        sum += T(kWeight) * (queue[Radius + d - kDistance] + queue[Radius + d + kDistance]);
        sum += T(kWeight) * (at[-kDistance] + at[kDistance]);
        sum += T(kWeight) * (at[-kDistance * nx] + at[kDistance * nx]);
      });
      out[(z + d) * plane + y * nx + x] = sum;
    });
    Unroll<2 * Radius>([&](auto i) { queue[i] = queue[i + Depth]; });
  }
}

template <typename T, typename Shape, int Radius, int Rows>
void RunStencil2d(const Workspace& workspace) {
  constexpr int kSize = 1024;
  const dim3 block(64, 4);
  const dim3 grid(kSize / block.x, kSize / (block.y * Rows) + 1);
  Stencil2dKernel<T, Shape, Radius, Rows><<<grid, block>>>(
      static_cast<const T*>(workspace.in), static_cast<T*>(workspace.out), kSize, kSize);
}

template <typename T, int Radius, int Depth>
void RunStencil3d(const Workspace& workspace) {
  constexpr int kSize = 96;
  const dim3 block(32, 4);
  const dim3 grid(kSize / block.x, kSize / block.y);
  Stencil3dKernel<T, Radius, Depth><<<grid, block>>>(
      static_cast<const T*>(workspace.in), static_cast<T*>(workspace.out), kSize, kSize, kSize);
}

template <typename T, typename Shape, int... Radius, int... Rows>
void AddStencil2d(Registry& registry, IntList<Radius...> radii, IntList<Rows...> rows) {
  ForEachInt(radii, [&](auto radius) {
    ForEachInt(rows, [&](auto row_count) {
      constexpr int kRadius = decltype(radius)::value;
      constexpr int kRows = decltype(row_count)::value;
      registry.Add("stencil2d",
                   TypeName<T>() + "_" + Shape::kName + std::to_string(kRadius) + "_rows" +
                       std::to_string(kRows),
                   RunStencil2d<T, Shape, kRadius, kRows>);
    });
  });
}

template <typename T, int... Radius, int... Depth>
void AddStencil3d(Registry& registry, IntList<Radius...> radii, IntList<Depth...> depths) {
  ForEachInt(radii, [&](auto radius) {
    ForEachInt(depths, [&](auto depth) {
      constexpr int kRadius = decltype(radius)::value;
      constexpr int kDepth = decltype(depth)::value;
      registry.Add(
          "stencil3d",
          TypeName<T>() + "_star" + std::to_string(kRadius) + "_depth" + std::to_string(kDepth),
          RunStencil3d<T, kRadius, kDepth>);
    });
  });
}

}  // namespace kernels

#endif  // EXAMPLES_CUDA_STENCIL_CUH_

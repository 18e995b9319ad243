// SHA-256 of short messages, kLanes messages a thread, with all 64 rounds and the message schedule
// written out.
#ifndef EXAMPLES_CUDA_HASH_CUH_
#define EXAMPLES_CUDA_HASH_CUH_

#include "common.cuh"

namespace kernels {

struct Sha256 {
  static constexpr std::uint32_t kRoundConstants[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
      0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
      0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
      0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
      0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
      0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
      0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
      0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
      0xc67178f2};
  static constexpr std::uint32_t kInitial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
};

template <int Bits>
__device__ __forceinline__ std::uint32_t RotateRight(std::uint32_t x) {
  return x >> Bits | x << (32 - Bits);
}

template <int Round>
__device__ __forceinline__ std::uint32_t Schedule(std::uint32_t (&w)[16]) {
  if constexpr (Round >= 16) {
    const std::uint32_t a = w[(Round + 1) % 16];
    const std::uint32_t b = w[(Round + 14) % 16];
    const std::uint32_t small0 = RotateRight<7>(a) ^ RotateRight<18>(a) ^ a >> 3;
    const std::uint32_t small1 = RotateRight<17>(b) ^ RotateRight<19>(b) ^ b >> 10;
    w[Round % 16] += small0 + w[(Round + 9) % 16] + small1;
  }
  return w[Round % 16];
}

// One compression; the eight working variables rotate by index, not by moves.
__device__ __forceinline__ void Compress(std::uint32_t (&state)[8], std::uint32_t (&w)[16]) {
  std::uint32_t v[8];
  Unroll<8>([&](auto i) { v[i] = state[i]; });
  Unroll<64>([&](auto round) {
    constexpr int kRound = decltype(round)::value;
    constexpr std::uint32_t kConstant = Sha256::kRoundConstants[kRound];
    const auto at = [](int i) { return (i + 64 - kRound) % 8; };
    const std::uint32_t e = v[at(4)];
    const std::uint32_t a = v[at(0)];
    const std::uint32_t big1 = RotateRight<6>(e) ^ RotateRight<11>(e) ^ RotateRight<25>(e);
    const std::uint32_t choose = (e & v[at(5)]) ^ (~e & v[at(6)]);
    const std::uint32_t t1 = v[at(7)] + big1 + choose + kConstant + Schedule<kRound>(w);
    const std::uint32_t big0 = RotateRight<2>(a) ^ RotateRight<13>(a) ^ RotateRight<22>(a);
    const std::uint32_t majority = (a & v[at(1)]) ^ (a & v[at(2)]) ^ (v[at(1)] & v[at(2)]);
    v[at(3)] += t1;
    v[at(7)] = t1 + big0 + majority;
  });
  Unroll<8>([&](auto i) { state[i] += v[i]; });
}

// Messages of Words 32-bit words (big-endian), padded as the standard says.
template <int Words, int Lanes>
__global__ void Sha256Kernel(const std::uint32_t* __restrict__ in, std::uint32_t* __restrict__ out,
                             int count) {
  constexpr int kBlocks = (Words + 3 + 15) / 16;
  const int first = (blockIdx.x * blockDim.x + threadIdx.x) * Lanes;
  Unroll<Lanes>([&](auto lane) {
    const int message = first + lane;
    if (message >= count) return;
    std::uint32_t state[8];
    Unroll<8>([&](auto i) {
      constexpr std::uint32_t kInitial = Sha256::kInitial[decltype(i)::value];
      state[i] = kInitial;
    });
    Unroll<kBlocks>([&](auto block) {
      std::uint32_t w[16];
      Unroll<16>([&](auto i) {
        constexpr int kAt = decltype(block)::value * 16 + decltype(i)::value;
        if constexpr (kAt < Words) {
          w[i] = in[kAt * count + message];
        } else if constexpr (kAt == Words) {
          w[i] = 0x80000000u;
        } else {
          w[i] = kAt == kBlocks * 16 - 1 ? Words * 32u : 0u;
        }
      });
      Compress(state, w);
    });
    Unroll<8>([&](auto i) { out[i * count + message] = state[i]; });
  });
}

template <int Words, int Lanes>
void RunSha256(const Workspace& workspace) {
  constexpr int kCount = 4096;
  Sha256Kernel<Words, Lanes>
      <<<(kCount / Lanes + 127) / 128, 128>>>(static_cast<const std::uint32_t*>(workspace.in),
                                              static_cast<std::uint32_t*>(workspace.out), kCount);
}

template <int Lanes, int... Words>
void AddSha256(Registry& registry, IntList<Words...> sizes) {
  ForEachInt(sizes, [&](auto size) {
    constexpr int kWords = decltype(size)::value;
    registry.Add("sha256", std::to_string(kWords * 4) + "bytes_x" + std::to_string(Lanes),
                 RunSha256<kWords, Lanes>);
  });
}

}  // namespace kernels

#endif  // EXAMPLES_CUDA_HASH_CUH_

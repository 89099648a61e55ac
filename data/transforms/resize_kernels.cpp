#include "data/transforms/resize_kernels.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace ddp {
namespace {

constexpr int32_t kHalf = 1 << (kWeightFractionBits - 1);

uint8_t rounded(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kWeightFractionBits, 0, 255));
}

void across_portable(const uint8_t* row, const ResizeWeights& weights, std::span<const int32_t> /*spread*/,
                     uint8_t* out) {
  const int32_t* weight = weights.values.data();
  for (const ResizeWindow& window : weights.windows) {
    const uint8_t* pixel = row + window.begin * 3;
    int32_t red = kHalf, green = kHalf, blue = kHalf;
    for (int64_t i = 0; i < window.count; ++i, pixel += 3) {
      red += pixel[0] * weight[i];
      green += pixel[1] * weight[i];
      blue += pixel[2] * weight[i];
    }
    out[0] = rounded(red);
    out[1] = rounded(green);
    out[2] = rounded(blue);
    out += 3;
    weight += weights.stride;
  }
}

/// Computes `count` bytes of a row. `count` should be a compile-time constant, so that the compiler keeps the sums in
/// registers.
[[gnu::always_inline]] inline void down_bytes(const uint8_t* first, int64_t bytes, std::span<const int32_t> weights,
                                              int64_t count, int32_t* sums, uint8_t* out) {
  std::fill_n(sums, count, kHalf);
  for (size_t i = 0; i < weights.size(); ++i) {
    const uint8_t* row = first + static_cast<int64_t>(i) * bytes;
    for (int64_t x = 0; x < count; ++x) sums[x] += row[x] * weights[i];
  }
  for (int64_t x = 0; x < count; ++x) out[x] = rounded(sums[x]);
}

constexpr int64_t kStrip = 32;

void down_portable(const uint8_t* first, int64_t bytes, std::span<const int32_t> weights, uint8_t* out) {
  int32_t sums[kStrip];
  for (int64_t x = 0; x < bytes; x += kStrip) {
    down_bytes(first + x, bytes, weights, std::min(kStrip, bytes - x), sums, out + x);
  }
}

constexpr ResizeKernels kPortable{.across = across_portable, .down = down_portable};

#ifdef __x86_64__

constexpr int kLowWeightBits = 15;  // the bits in the lower of the two 16-bit parts of a weight
constexpr int64_t kAtOnce = 4;      // input pixels per group
constexpr int64_t kSpread = 16;     // 32-bit numbers for the weights of a group

/// Computes red, green and blue of one output pixel; the fourth number is meaningless. 16-bit products are summed in
/// pairs, separately for the high and low parts of the weights. The sums are exact, because 32 bits are enough for the
/// whole. If `kGroups` is not 0, that many groups of weights are used without a branch (some weights may be zero);
/// otherwise as many as the window has.
template <int kGroups>
[[gnu::target("avx2"), gnu::always_inline]] inline __m128i across_pixel(const uint8_t* row, const ResizeWindow& window,
                                                                        const int32_t* weight) {
  const uint8_t* pixel = row + window.begin * 3;
  const __m256i pairs = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,  //
                                         6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  __m256i high = _mm256_setzero_si256(), low = high;
  const int64_t count = kGroups > 0 ? kGroups * kAtOnce : window.count;
  for (int64_t i = 0; i < count; i += kAtOnce, pixel += 3 * kAtOnce, weight += kSpread) {
    const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pixel)));
    const __m256i values = _mm256_shuffle_epi8(bytes, pairs);
    const auto* factors = reinterpret_cast<const __m256i*>(weight);
    high = _mm256_add_epi32(high, _mm256_madd_epi16(values, _mm256_loadu_si256(factors)));
    low = _mm256_add_epi32(low, _mm256_madd_epi16(values, _mm256_loadu_si256(factors + 1)));
  }
  const __m256i sums = _mm256_add_epi32(_mm256_slli_epi32(high, kLowWeightBits), low);
  const __m128i both = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  return _mm_srai_epi32(_mm_add_epi32(both, _mm_set1_epi32(kHalf)), kWeightFractionBits);
}

int64_t spread_stride(const ResizeWeights& weights) {
  return (weights.most + kAtOnce - 1) / kAtOnce * kSpread;
}

/// Prepares the weights for across_pixel(). For each group of four weights: four numbers with the high parts of the
/// first two weights (one for each of three channels, and one unused), four with those of the other two, then the same
/// with the low parts.
std::vector<int32_t> spread_weights(const ResizeWeights& weights) {
  const int64_t step = spread_stride(weights);
  std::vector<int32_t> spread(weights.windows.size() * static_cast<size_t>(step));
  for (size_t window = 0; window < weights.windows.size(); ++window) {
    const int32_t* const values = weights.values.data() + static_cast<int64_t>(window) * weights.stride;
    int32_t* out = spread.data() + static_cast<int64_t>(window) * step;
    for (int64_t i = 0; i < weights.windows[window].count; i += 2) {
      const int32_t first = values[i], second = i + 1 < weights.stride ? values[i + 1] : 0;
      constexpr int32_t kLow = (1 << kLowWeightBits) - 1;
      int32_t* const place = out + i / kAtOnce * kSpread + i % kAtOnce * 2;
      std::fill_n(place, 4, ((first >> kLowWeightBits) & 0xFFFF) | (second >> kLowWeightBits) * 0x10000);
      std::fill_n(place + kSpread / 2, 4, (first & kLow) | (second & kLow) * 0x10000);
    }
  }
  return spread;
}

template <int kGroups>
[[gnu::target("avx2")]] void across_groups(const uint8_t* row, const ResizeWeights& weights,
                                           std::span<const int32_t> spread, uint8_t* out) {
  const int64_t step = spread_stride(weights);
  const int32_t* weight = spread.data();
  const ResizeWindow* window = weights.windows.data();
  const ResizeWindow* const end = window + weights.windows.size();
  constexpr int64_t kWindowsPerStep = 4;
  const __m128i together = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  for (; end - window >= kWindowsPerStep;
       window += kWindowsPerStep, weight += kWindowsPerStep * step, out += 3 * kWindowsPerStep) {
    const __m128i first = _mm_packs_epi32(across_pixel<kGroups>(row, window[0], weight),
                                          across_pixel<kGroups>(row, window[1], weight + step));
    const __m128i second = _mm_packs_epi32(across_pixel<kGroups>(row, window[2], weight + 2 * step),
                                           across_pixel<kGroups>(row, window[3], weight + 3 * step));
    const __m128i bytes = _mm_shuffle_epi8(_mm_packus_epi16(first, second), together);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), bytes);
    const int rest = _mm_extract_epi32(bytes, 2);
    std::memcpy(out + 8, &rest, sizeof rest);
  }
  for (; window != end; ++window, weight += step, out += 3) {
    const __m128i pixel = across_pixel<kGroups>(row, *window, weight);
    const __m128i words = _mm_packs_epi32(pixel, pixel);
    const int rgb = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    std::memcpy(out, &rgb, 3);
  }
}

[[gnu::target("avx2")]] void across_avx2(const uint8_t* row, const ResizeWeights& weights,
                                         std::span<const int32_t> spread, uint8_t* out) {
  if (weights.most <= kAtOnce) return across_groups<1>(row, weights, spread, out);
  if (weights.most <= 2 * kAtOnce) return across_groups<2>(row, weights, spread, out);
  across_groups<0>(row, weights, spread, out);
}

[[gnu::target("avx2")]] inline __m256i weighted(const uint8_t* bytes, __m256i factor) {
  return _mm256_mullo_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))), factor);
}

[[gnu::target("avx2")]] void down_avx2(const uint8_t* first, int64_t bytes, std::span<const int32_t> weights,
                                       uint8_t* out) {
  const __m256i half = _mm256_set1_epi32(kHalf);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // packing works within 128-bit halves
  int64_t x = 0;
  for (; x + kStrip <= bytes; x += kStrip) {
    __m256i a = half, b = half, c = half, d = half;
    const uint8_t* row = first + x;
    for (const int32_t weight : weights) {
      const __m256i factor = _mm256_set1_epi32(weight);
      a = _mm256_add_epi32(a, weighted(row, factor));
      b = _mm256_add_epi32(b, weighted(row + 8, factor));
      c = _mm256_add_epi32(c, weighted(row + 16, factor));
      d = _mm256_add_epi32(d, weighted(row + 24, factor));
      row += bytes;
    }
    const __m256i ab =
        _mm256_packs_epi32(_mm256_srai_epi32(a, kWeightFractionBits), _mm256_srai_epi32(b, kWeightFractionBits));
    const __m256i cd =
        _mm256_packs_epi32(_mm256_srai_epi32(c, kWeightFractionBits), _mm256_srai_epi32(d, kWeightFractionBits));
    const __m256i packed = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(ab, cd), order);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), packed);
  }
  int32_t sums[kStrip];
  if (x < bytes) down_bytes(first + x, bytes, weights, bytes - x, sums, out + x);
}

constexpr ResizeKernels kAvx2{.across = across_avx2, .down = down_avx2, .spread = spread_weights};

#endif

}  // namespace

const ResizeKernels& portable_resize_kernels() {
  return kPortable;
}

const ResizeKernels& resize_kernels() {
#ifdef __x86_64__
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return kAvx2;
#endif
  return kPortable;
}

}  // namespace ddp

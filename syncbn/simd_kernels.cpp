#include "syncbn/simd_kernels.h"

namespace ddp::detail {

extern const SimdLevel simd_default;
#if defined(__x86_64__)
extern const SimdLevel simd_avx2;
extern const SimdLevel simd_avx512;
#endif

int supported_simd_levels(const SimdLevel* (&levels)[3]) {
  int count = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512) levels[count++] = &simd_avx512;
  if (avx2) levels[count++] = &simd_avx2;
#endif
  levels[count++] = &simd_default;
  return count;
}

const SimdLevel& simd_level() {
  static const SimdLevel& fastest = []() -> const SimdLevel& {
    const SimdLevel* levels[3];
    supported_simd_levels(levels);
    return *levels[0];
  }();
  return fastest;
}

}  // namespace ddp::detail

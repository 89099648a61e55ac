#include "syncbn/simd_kernels.h"

namespace ddp::detail {

extern const SimdLevel simd_default;
#if defined(__x86_64__)
extern const SimdLevel simd_avx2;
#endif

int supported_simd_levels(const SimdLevel* (&levels)[2]) {
  int count = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    levels[count++] = &simd_avx2;
  }
#endif
  levels[count++] = &simd_default;
  return count;
}

const SimdLevel& simd_level() {
  static const SimdLevel* const fastest = [] {
    const SimdLevel* levels[2];
    supported_simd_levels(levels);
    return levels[0];
  }();
  return *fastest;
}

}  // namespace ddp::detail

#include "comm/shm/combine.h"

namespace ddp::shm {

extern const CombineLevel combine_default;
#if defined(__x86_64__)
extern const CombineLevel combine_avx2;
extern const CombineLevel combine_avx512;
#endif

size_t size_of(DType dtype) {
  constexpr size_t kSizes[kDTypes] = {4, 8, 2, 2, 1, 1, 4, 8};
  return kSizes[static_cast<int>(dtype)];
}

int supported_combine_levels(const CombineLevel* (&levels)[3]) {
  int count = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    levels[count++] = &combine_avx512;
  }
  if (has_avx2) levels[count++] = &combine_avx2;
#endif
  levels[count++] = &combine_default;
  return count;
}

Combine find_combine(DType dtype, Operator op) {
  static const CombineLevel* const fastest = [] {
    const CombineLevel* levels[3];
    supported_combine_levels(levels);
    return levels[0];
  }();
  return fastest->find(dtype, op);
}

}  // namespace ddp::shm

#define DDPRUN_SIMD_LEVEL simd_avx2
#define DDPRUN_SIMD_NAME "AVX2"
#include "syncbn/simd_kernels_impl.h"

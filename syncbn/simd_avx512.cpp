#define DDPRUN_SIMD_LEVEL simd_avx512
#define DDPRUN_SIMD_NAME "AVX-512"
#include "syncbn/simd_kernels_impl.h"

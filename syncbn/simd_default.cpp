#define DDPRUN_SIMD_LEVEL simd_default
#define DDPRUN_SIMD_NAME "baseline"
#include "syncbn/simd_kernels_impl.h"

#define DDPRUN_COMBINE_LEVEL combine_avx2
#define DDPRUN_COMBINE_NAME "AVX2"
#include "comm/shm/combine_impl.h"

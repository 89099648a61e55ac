#define DDPRUN_COMBINE_LEVEL combine_avx512
#define DDPRUN_COMBINE_NAME "AVX-512"
#include "comm/shm/combine_impl.h"

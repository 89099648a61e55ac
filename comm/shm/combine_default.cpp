#define DDPRUN_COMBINE_LEVEL combine_default
#define DDPRUN_COMBINE_NAME "portable"
#include "comm/shm/combine_impl.h"

#include <ddprun/ddp.h>

#include "data/loader.h"  // the project's own

#ifndef OWN_HEADER
#error "another header than the project's own was taken"
#endif

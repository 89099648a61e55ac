#include <ddprun/ddp.h>

#include "data/loader.h"  // the project's own

static_assert(OwnHeader::kIsData);

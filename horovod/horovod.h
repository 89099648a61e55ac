// Horovod's way to write data parallel training, for programs that come from there: a context named `hvd` whose members
// have Horovod's names, and an optimizer that reduces gradients during backward. Table: docs/horovod.md.
#pragma once

#include "horovod/adasum.h"
#include "horovod/broadcast_state.h"
#include "horovod/context.h"
#include "horovod/distributed_optimizer.h"

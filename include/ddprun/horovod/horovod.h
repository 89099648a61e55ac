// Horovod's way to write data parallel training, for programs that come from there: a context named `hvd` whose members
// have Horovod's names, and an optimizer that reduces gradients during backward. Table: docs/horovod.md.
#pragma once

#include <ddprun/horovod/adasum.h>
#include <ddprun/horovod/broadcast_state.h>
#include <ddprun/horovod/context.h>
#include <ddprun/horovod/distributed_optimizer.h>

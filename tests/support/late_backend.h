// A model of NCCL's asynchrony for machines without a GPU: collectives whose results come late.
#pragma once

#include "comm/backends/backend_types.h"

namespace ddp::test {

/// "late": gloo for CPU tensors, delayed. Until a collective's wait() (or future) has ended, its outputs hold NaN
/// (integers: all bits set), and a buffer that the caller touches meanwhile makes the collective fail. Synchronous
/// calls (asyncOp=false) return no Work.
detail::BackendType late_backend();

}  // namespace ddp::test

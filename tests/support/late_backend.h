// A model of NCCL's asynchrony for machines without a GPU: collectives whose results come late.
#pragma once

#include <memory>

#include "comm/group/c10d_compat.h"

namespace ddp::test {

/// Wraps a CPU backend. Until a collective's wait() (or future) has ended, its outputs hold NaN (integers: all bits
/// set), and a buffer that the caller touches meanwhile makes the collective fail. Synchronous calls (asyncOp=false)
/// return no Work.
c10::intrusive_ptr<c10d::Backend> make_late_backend(c10::intrusive_ptr<c10d::Backend> inner);

}  // namespace ddp::test

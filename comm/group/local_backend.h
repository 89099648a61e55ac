// Internal: the backend of a group of one process. Every collective is the identity and no socket is opened.
#pragma once

#include "comm/group/c10d_compat.h"

namespace ddp::detail {

/// A c10d backend for world size 1.
c10::intrusive_ptr<c10d::Backend> make_local_backend();

/// A Work that has already ended with `result`, whose future carries the devices of the tensors, as Reducer expects.
c10::intrusive_ptr<c10d::Work> completed_work(const std::vector<at::Tensor>& result);

}  // namespace ddp::detail

// Internal: a c10d Work in a type that installed headers may name.
#pragma once

#include "comm/backends/c10d_compat.h"

namespace ddp::detail {

struct PendingWork {
  c10::intrusive_ptr<c10d::Work> work{};
};

}  // namespace ddp::detail

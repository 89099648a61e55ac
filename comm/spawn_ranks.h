// Internal: spawn() with what only tests may choose.
#pragma once

#include <functional>

#include "comm/connect_group.h"
#include "comm/spawn.h"

namespace ddp::detail {

/// spawn() with `wrapper` around each CPU backend.
void spawn_ranks(int size, const std::function<void(const GroupHandle& group)>& body, const SpawnOptions& options,
                 const BackendWrapper& wrapper);

}  // namespace ddp::detail

// Internal: spawn() with what only tests may choose.
#pragma once

#include <functional>

#include <ddprun/comm/spawn.h>

namespace ddp::detail {

struct SpawnTestOptions {
  bool aborts_others = true;  ///< off: the others learn of a failure only through their connections
};

void spawn_ranks(int size, const std::function<void(const GroupHandle& group)>& body, const SpawnOptions& options,
                 const SpawnTestOptions& test_options);

}  // namespace ddp::detail

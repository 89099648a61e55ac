// Internal: the backends that this process knows by name.
#pragma once

#include "comm/backends/backend_type.h"
#include "comm/core/backend_map.h"

namespace ddp::detail {

/// All of them, in the order in which messages list them.
BackendList known_backends();

/// The type that has these traits, one of known_backends().
const BackendType& type_of(const BackendTraits& traits);

/// Makes one more known to the process, for good, as torch.distributed.Backend.register_backend() does; before the
/// first group that names it, on all ranks. Throws std::invalid_argument for a name that is taken or that
/// ProcessGroupOptions::backend cannot say, and for a type that serves no device or cannot be made.
void register_backend(BackendType type);

/// Runs each backend's own check, see BackendType.
void check_backends(const BackendMap& backends, const RankInfo& info);

}  // namespace ddp::detail

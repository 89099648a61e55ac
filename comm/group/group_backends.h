// Internal: what serves a group's tensors, for whoever has to do something else on another backend.
#pragma once

#include <ddprun/comm/process_group.h>

#include "comm/core/backend_map.h"

namespace ddp::detail {

/// A backend per device.
const BackendMap& backends_of(const GroupHandle& group);

/// What serves tensors on `device`; null when nothing does.
const BackendTraits* backend_for(const GroupHandle& group, c10::Device device);

}  // namespace ddp::detail

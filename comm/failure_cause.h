// Internal: after a failed collective, finds out with the other ranks who is the cause.
#pragma once

#include <cstdint>
#include <string>

#include "comm/group_state.h"

namespace ddp::detail {

/// The end of the error message of collective `number`, which failed here, such as "; did not take part in it: rank 2
/// (no answer: …)", what is known of the store, or "". The first rank to fail asks all others, the others adopt what it
/// has found (blame.h). Ranks that run Python are not named. Takes 2 seconds at the longest, whatever the store does.
/// Never throws.
std::string failure_cause(GroupState& state, uint64_t number);

}  // namespace ddp::detail

// Internal: after a failed collective, finds out through the store which ranks did not take part in it.
#pragma once

#include <cstdint>
#include <string>

#include "comm/group_state.h"

namespace ddp::detail {

/// Says in the store that collective `operation` failed here, waits up to a second for the other ranks to say the same
/// and returns the text to append to the error: "; did not take part in it: rank 2", what is known of the store, or "".
/// Ranks that run Python do not report and are not named. Costs nothing until a collective fails. Never throws.
std::string absent_ranks(const GroupState& state, uint64_t operation);

}  // namespace ddp::detail

// Internal: after a failed collective, finds out through the store which ranks did not take part in it.
#pragma once

#include <cstdint>
#include <string>

#include "comm/group_state.h"

namespace ddp::detail {

/// Says in the store that collective `operation` failed here, waits up to a second for the other ranks to say the same
/// and returns the text to append to the error: "; did not take part in it: rank 2", what is known of the store, or "".
/// `signature`, when it is given, is what this rank called, without what may differ between ranks: the first rank that
/// called something else in the same place is named with both. Ranks that run Python do not report and are not named.
/// Costs nothing until a collective fails. Never throws.
std::string absent_ranks(const GroupState& state, uint64_t operation, const std::string& signature = "");

}  // namespace ddp::detail

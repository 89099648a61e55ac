// Internal: what a rank that has joined, and has no inputs any more, does in place of a backward.
#pragma once

#include "comm/reducer/reducer_engine.h"

namespace ddp::detail {

/// Reduces zeros, with the collectives of the other ranks' backward. `keep_gradients`: what they have reduced becomes
/// this rank's gradients.
void shadow_backward(ReducerEngine& engine, const ReductionContext& context, bool keep_gradients);

}  // namespace ddp::detail

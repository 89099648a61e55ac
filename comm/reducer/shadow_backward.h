// Internal: what a rank that has joined, and has no inputs any more, does in place of a backward.
#pragma once

#include "comm/reducer/reducer_engine.h"

namespace ddp::detail {

/// Reduces zeros, with the collectives of the other ranks' backward. `keep_gradients`: what they have reduced becomes
/// this rank's gradients. `is_first_static`: this is the first backward of a static graph. Returns the sum over the
/// ranks of who has used each parameter; undefined where the ranks do not ask.
at::Tensor shadow_backward(ReducerEngine& engine, const ReductionContext& context, bool keep_gradients,
                           bool is_first_static);

}  // namespace ddp::detail

// An optimizer's description in a file, in the groups that the program's optimizer has.
#pragma once

#include <ddprun/checkpoint/options.h>

#include "checkpoint/core/saved_optimizer.h"
#include "checkpoint/optimizer_state.h"

namespace ddp {

/// `saved` itself, unless it has options for each parameter: then in the groups of `optimizer`, whose parameters have
/// `names`. If the file lacks a parameter, `saved` is returned unchanged, and the comparison that follows reports it.
/// Throws std::invalid_argument naming a parameter that has other options than the first one of its group.
SavedOptimizer regrouped(const SavedOptimizer& saved, const torch::optim::Optimizer& optimizer,
                         const ParameterNames& names, const NameMap& rename);

}  // namespace ddp

// Stopping in an orderly way: on TERM, INT or USR1 all ranks finish the same step, save, and leave with a status that
// launchers know.
#pragma once

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Exit status "saved and stopped": ddprun counts it as no failure (docs/errors.md).
inline constexpr int kSavedAndStopped = 85;

/// From now on TERM, INT and USR1 no longer end this process but are remembered for stop_requested(). Signals that are
/// ignored stay so. The first stop_requested() does the same; call this at the start of main to cover what comes
/// before.
void install_stop_handlers();

/// Whether any rank has got a signal to stop. Every rank must call it at the same step, and all get the same answer: it
/// costs one small all-reduce, and on CUDA a wait for it, so long loops may ask every few steps.
///
///     if (ddp::stop_requested(group)) {
///       checkpoints.save(step, state);
///       checkpoints.wait();
///       return ddp::kSavedAndStopped;
///     }
bool stop_requested(const GroupHandle& group);

/// Whether this process itself has got a signal to stop: not a collective, for what one rank does by itself.
bool told_to_stop();

}  // namespace ddp

// Orderly stop: after TERM, INT or USR1 all ranks finish the same step, save, and exit with a status that launchers
// know.
#pragma once

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Exit status "saved and stopped": ddprun does not count it as a failure (docs/errors.md).
inline constexpr int kSavedAndStopped = 85;

/// Installs handlers so that TERM, INT and USR1 no longer end this process; stop_requested() reports them instead. A
/// signal that is ignored remains ignored. The first stop_requested() installs them as well. Call this function at the
/// start of main() to handle signals that arrive earlier.
void install_stop_handlers();

/// Whether any rank has received a signal to stop. Every rank must call it at the same step, and all ranks get the same
/// result. It costs one small all-reduce, and on CUDA a wait for that, so a loop with short steps may call it every few
/// steps.
///
///     if (ddp::stop_requested(group)) {
///       checkpoints.save(step, state);
///       checkpoints.wait();
///       return ddp::kSavedAndStopped;
///     }
bool stop_requested(const GroupHandle& group);

/// Whether this process itself has received a signal to stop. Not a collective; for actions of a single rank.
bool told_to_stop();

}  // namespace ddp

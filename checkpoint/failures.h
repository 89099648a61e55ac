// Failures that happen on some ranks and must end the call on all of them.
#pragma once

#include <functional>
#include <string>

#include <ddprun/comm/process_group.h>

#include "checkpoint/storage/damage.h"

namespace ddp {

using storage::Failure;
using storage::FailureKind;

/// Runs `action`; why it failed.
Failure failure_of(const std::function<void()>& action);

/// One failure for all ranks, the same on each: the worst kind, and the texts of the ranks that failed. Every rank must
/// call it.
Failure combined_failures(const Failure& failure, const GroupHandle& group);

/// Rank 0's failure. Every rank must call it.
Failure failure_of_rank_0(const Failure& failure, const GroupHandle& group);

/// Throws std::runtime_error with `what` in front of the text if there is a failure.
void throw_if_failed(const Failure& failure, const std::string& what);

}  // namespace ddp

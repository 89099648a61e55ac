// Failures that happen on some ranks and must end the call on all of them.
#pragma once

#include <functional>
#include <string>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Runs `action`; the reason why it failed, or an empty text.
std::string failure_of(const std::function<void()>& action);

/// Every rank must call it. One text for all ranks' failures, the same on each; empty when there are none.
std::string combined_failures(const std::string& failure, const GroupHandle& group);

}  // namespace ddp

// Internal: which processes may share memory. No LibTorch.
#pragma once

#include <string>

#include <ddprun/base/rank_info.h>

namespace ddp::detail {

/// A text that is equal where processes are on one running system and can see each other's process numbers: the boot's
/// and the PID namespace's. With DDPRUN_SHM_HOST, whose text is a part of it, ranks of one host stay apart.
std::string host_identity(const EnvironmentLookup& lookup = process_environment());

}  // namespace ddp::detail

// Internal: decides whether this process may use CUDA, without touching the driver. Does not use LibTorch.
#pragma once

#include <functional>
#include <string>

#include <ddprun/base/rank_info.h>

namespace ddp::detail {

/// Empty when a CUDA driver and device seem to be there, or DDPRUN_CUDA=1 says so; otherwise the reason why not.
/// `path_exists` looks at the file system.
std::string why_no_cuda(const EnvironmentLookup& lookup, const std::function<bool(const char*)>& path_exists);

}  // namespace ddp::detail

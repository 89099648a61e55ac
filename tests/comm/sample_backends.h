// Backends as the pure core sees them: names and traits, nothing that connects.
#pragma once

#include "comm/core/backend_map.h"

namespace ddp::test {

inline const BackendTraits kGloo{.name = "gloo", .serves_cpu = true, .serves_cuda = true};
inline const BackendTraits kNccl{.name = "nccl",
                                 .title = "NCCL",
                                 .serves_cuda = true,
                                 .needs_cuda = true,
                                 .default_timeout = std::chrono::minutes(10)};
inline const BackendTraits kLocal{.name = "local", .serves_cpu = true, .serves_cuda = true, .for_one_rank = true};
/// One that a program adds.
inline const BackendTraits kShout{.name = "shout", .serves_cpu = true};

inline const BackendList kSampleBackends{&kGloo, &kNccl, &kLocal, &kShout};

}  // namespace ddp::test

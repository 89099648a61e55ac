// Internal: numbers of a backend's collectives, on which its ranks agreed at the beginning up to LibTorch 2.13; since
// then they begin at 0, and the call warns.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/headeronly/version.h>

namespace ddp::versions {

inline void begin_sequence_numbers([[maybe_unused]] c10d::Backend& backend) {
#if TORCH_VERSION_MINOR < 14
  backend.setSequenceNumberForGroup();
#endif
}

}  // namespace ddp::versions

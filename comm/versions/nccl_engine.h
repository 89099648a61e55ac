// Internal: LibTorch's NCCL backends. 2.14 brought a second one, c10d::nccl2, which Python takes by default since 2.15.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/headeronly/version.h>

#if TORCH_VERSION_MINOR >= 14
#include <torch/csrc/distributed/c10d/nccl2/ProcessGroupNCCL.hpp>
#endif

#include <string_view>

namespace ddp::versions {

/// The new engine where the variable TORCH_DIST_USE_NCCL2 (`wish`, null when unset) is "1" and LibTorch has it, else
/// the one that all versions have. Ranks of one job need the same: with ranks that run Python 2.15 the variable has to
/// be set for all, to "0" or "1".
inline c10::intrusive_ptr<c10d::Backend> make_nccl(const char* wish, const c10::intrusive_ptr<c10d::Store>& store,
                                                   int rank, int size,
                                                   const c10::intrusive_ptr<c10d::ProcessGroupNCCL::Options>& options) {
#if TORCH_VERSION_MINOR >= 14
  if (wish != nullptr && std::string_view(wish) == "1") {
    return c10::make_intrusive<c10d::nccl2::ProcessGroupNCCL>(store, rank, size, options);
  }
#endif
  static_cast<void>(wish);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}

}  // namespace ddp::versions

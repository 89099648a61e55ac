// Internal: c10d's collectives on one tensor that holds all ranks' parts, which have their public names since
// LibTorch 2.13.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/headeronly/version.h>

#include <cstdint>
#include <vector>

namespace ddp::versions {

inline c10::intrusive_ptr<c10d::Work> all_gather_single(c10d::ProcessGroup& group, at::Tensor& output,
                                                        at::Tensor& input, const c10d::AllgatherOptions& options) {
#if TORCH_VERSION_MINOR < 13
  return group._allgather_base(output, input, options);
#else
  return group.all_gather_single(output, input, options);
#endif
}

inline c10::intrusive_ptr<c10d::Work> reduce_scatter_single(c10d::ProcessGroup& group, at::Tensor& output,
                                                            at::Tensor& input,
                                                            const c10d::ReduceScatterOptions& options) {
#if TORCH_VERSION_MINOR < 13
  return group._reduce_scatter_base(output, input, options);
#else
  return group.reduce_scatter_single(output, input, options);
#endif
}

inline c10::intrusive_ptr<c10d::Work> all_to_all_single(c10d::ProcessGroup& group, at::Tensor& output,
                                                        at::Tensor& input, std::vector<int64_t>& output_counts,
                                                        std::vector<int64_t>& input_counts,
                                                        const c10d::AllToAllOptions& options) {
#if TORCH_VERSION_MINOR < 13
  return group.alltoall_base(output, input, output_counts, input_counts, options);
#else
  return group.all_to_all_single(output, input, output_counts, input_counts, options);
#endif
}

}  // namespace ddp::versions

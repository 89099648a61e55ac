// Internal: c10d's collectives on one tensor that holds all ranks' parts, which have their public names since
// LibTorch 2.13.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/headeronly/version.h>

#include <cstdint>
#include <vector>

namespace ddp::versions {

#if TORCH_VERSION_MINOR < 13

inline c10::intrusive_ptr<c10d::Work> all_gather_single(c10d::ProcessGroup& group, at::Tensor& output,
                                                        at::Tensor& input, const c10d::AllgatherOptions& options) {
  return group._allgather_base(output, input, options);
}
inline c10::intrusive_ptr<c10d::Work> reduce_scatter_single(c10d::ProcessGroup& group, at::Tensor& output,
                                                            at::Tensor& input,
                                                            const c10d::ReduceScatterOptions& options) {
  return group._reduce_scatter_base(output, input, options);
}
inline c10::intrusive_ptr<c10d::Work> all_to_all_single(c10d::ProcessGroup& group, at::Tensor& output,
                                                        at::Tensor& input, std::vector<int64_t>& output_counts,
                                                        std::vector<int64_t>& input_counts,
                                                        const c10d::AllToAllOptions& options) {
  return group.alltoall_base(output, input, output_counts, input_counts, options);
}

#else

inline c10::intrusive_ptr<c10d::Work> all_gather_single(c10d::ProcessGroup& group, at::Tensor& output,
                                                        at::Tensor& input, const c10d::AllgatherOptions& options) {
  return group.all_gather_single(output, input, options);
}
inline c10::intrusive_ptr<c10d::Work> reduce_scatter_single(c10d::ProcessGroup& group, at::Tensor& output,
                                                            at::Tensor& input,
                                                            const c10d::ReduceScatterOptions& options) {
  return group.reduce_scatter_single(output, input, options);
}
inline c10::intrusive_ptr<c10d::Work> all_to_all_single(c10d::ProcessGroup& group, at::Tensor& output,
                                                        at::Tensor& input, std::vector<int64_t>& output_counts,
                                                        std::vector<int64_t>& input_counts,
                                                        const c10d::AllToAllOptions& options) {
  return group.all_to_all_single(output, input, output_counts, input_counts, options);
}

#endif

}  // namespace ddp::versions

// Internal: c10d's collectives on tensors that hold all ranks' parts. Those on one tensor have their public names since
// LibTorch 2.13, those on lists later.
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

template <typename Group>
c10::intrusive_ptr<c10d::Work> all_gather_list(Group& group, std::vector<at::Tensor>& outputs,
                                               std::vector<at::Tensor>& inputs, const c10d::AllgatherOptions& options) {
  if constexpr (requires { group.all_gather_single_coalesced(outputs, inputs, options); }) {
    return group.all_gather_single_coalesced(outputs, inputs, options);
  } else {
    return group.allgather_into_tensor_coalesced(outputs, inputs, options);
  }
}

template <typename Group>
c10::intrusive_ptr<c10d::Work> reduce_scatter_list(Group& group, std::vector<at::Tensor>& outputs,
                                                   std::vector<at::Tensor>& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  if constexpr (requires { group.reduce_scatter_single_coalesced(outputs, inputs, options); }) {
    return group.reduce_scatter_single_coalesced(outputs, inputs, options);
  } else {
    return group.reduce_scatter_tensor_coalesced(outputs, inputs, options);
  }
}

}  // namespace ddp::versions

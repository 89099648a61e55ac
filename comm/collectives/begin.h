// Internal: collectives under way, as the public functions and those that record gradients start them. Arguments are
// checked as these document; the second of a pair is the output, which is filled when the first has ended.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>

#include "comm/collectives/collective_call.h"

namespace ddp::detail {

using Started = std::shared_ptr<PendingCall>;
using StartedWithOutput = std::pair<Started, at::Tensor>;

struct BeginOptions {
  CollectiveOptions options{};
  bool async = true;   ///< false: the caller waits at once
  std::string note{};  ///< what else ranks must agree on: "gradient of number 17"
};

/// `how` and the note, for Call::how.
std::string with_note(std::string how, const BeginOptions& begin);

/// "sum".
const char* name_of(ReduceOp op);

/// `after` runs once when it has ended.
Started begin_all_reduce(const at::Tensor& tensor, const GroupHandle& group, ReduceOp op, const BeginOptions& begin,
                         std::function<void()> after = {});
Started begin_all_reduce_coalesced(const std::vector<at::Tensor>& tensors, const GroupHandle& group, ReduceOp op,
                                   const BeginOptions& begin);
Started begin_reduce(const at::Tensor& tensor, int root, const GroupHandle& group, ReduceOp op,
                     const BeginOptions& begin);
StartedWithOutput begin_reduce_scatter(const at::Tensor& tensor, const GroupHandle& group, ReduceOp op,
                                       const BeginOptions& begin);
/// The output has a dimension more than the tensor: one row per rank.
StartedWithOutput begin_all_gather(const at::Tensor& tensor, const GroupHandle& group, const BeginOptions& begin);
/// The output is undefined on ranks other than `root`.
StartedWithOutput begin_gather(const at::Tensor& tensor, int root, const GroupHandle& group, const BeginOptions& begin);
Started begin_scatter(const at::Tensor& tensor, const std::vector<at::Tensor>& parts, int root,
                      const GroupHandle& group, const BeginOptions& begin);
Started begin_broadcast(const at::Tensor& tensor, int root, const GroupHandle& group, const BeginOptions& begin);
StartedWithOutput begin_all_to_all(const at::Tensor& tensor, const GroupHandle& group, const BeginOptions& begin);
/// Sends input_counts[i] rows to rank i and receives output_counts[i] from it, which the ranks know of each other.
StartedWithOutput begin_all_to_all(const at::Tensor& tensor, const std::vector<int64_t>& output_counts,
                                   const std::vector<int64_t>& input_counts, const GroupHandle& group,
                                   const BeginOptions& begin);

}  // namespace ddp::detail

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
using StartedWithOutputs = std::pair<Started, std::vector<at::Tensor>>;

struct BeginOptions {
  CollectiveOptions options{};
  bool async = true;             ///< false: the caller waits at once
  std::string note{};            ///< what else ranks must agree on: "gradient of number 17"
  const char* caller = nullptr;  ///< the public function of which it is a part, for messages: "scatter_string"

  /// What messages call it: the caller's name, or its own.
  const char* name(const char* own) const { return caller == nullptr ? own : caller; }
  BeginOptions as_part_of(const char* function) const {
    BeginOptions part = *this;
    part.caller = function;
    return part;
  }
};

/// Whether a list of tensors is one call of the backend: what ranks that run Python call for such a list, which has one
/// dtype there.
bool runs_as_one_backend_call(const std::vector<at::Tensor>& tensors, const GroupHandle& group);

/// A call for each tensor, all under way at once: the last bits of sums are those of single calls.
template <typename Begin>
StartedWithOutputs begin_each(const std::vector<at::Tensor>& tensors, const Begin& begin_one) {
  std::vector<Started> started;
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& tensor : tensors) {
    StartedWithOutput one = begin_one(tensor);
    started.push_back(std::move(one.first));
    outputs.push_back(std::move(one.second));
  }
  return {started.size() == 1 ? started.front() : all_of(std::move(started)), std::move(outputs)};
}

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
/// The same into `output`, of one row per rank.
Started begin_all_gather_into(at::Tensor output, const at::Tensor& tensor, const GroupHandle& group,
                              const BeginOptions& begin);
/// The output is undefined on ranks other than `root`.
StartedWithOutput begin_gather(const at::Tensor& tensor, int root, const GroupHandle& group, const BeginOptions& begin);
Started begin_scatter(const at::Tensor& tensor, const std::vector<at::Tensor>& parts, int root,
                      const GroupHandle& group, const BeginOptions& begin);
Started begin_broadcast(const at::Tensor& tensor, int root, const GroupHandle& group, const BeginOptions& begin);
StartedWithOutput begin_all_to_all(const at::Tensor& tensor, const GroupHandle& group, const BeginOptions& begin);
/// For lists with the same number of tensors on all ranks. One call, as in torch.distributed, if ranks that run Python
/// may take part and all tensors have the same dtype; otherwise one call per tensor. Outputs as begin_all_gather()'s.
StartedWithOutputs begin_all_gather_coalesced(const std::vector<at::Tensor>& tensors, const GroupHandle& group,
                                              const BeginOptions& begin);
StartedWithOutputs begin_reduce_scatter_coalesced(const std::vector<at::Tensor>& tensors, const GroupHandle& group,
                                                  ReduceOp op, const BeginOptions& begin);
/// Sends input_counts[i] rows to rank i and receives output_counts[i] from it, which the ranks know of each other.
StartedWithOutput begin_all_to_all(const at::Tensor& tensor, const std::vector<int64_t>& output_counts,
                                   const std::vector<int64_t>& input_counts, const GroupHandle& group,
                                   const BeginOptions& begin);
/// A message between two ranks.
Started begin_message(const Message& message, const GroupHandle& group, const BeginOptions& begin);

}  // namespace ddp::detail

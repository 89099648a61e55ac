// Collective reductions: values of all ranks combined. Every rank of the group must call them in the same order, from
// one thread at a time, with the same shapes, dtypes and settings.
//
// All of these take tensors that are dense, contiguous, on a device that the group has a backend for, and owned by the
// caller, who must not touch them during the call. On CUDA the result is ready for the current stream, not yet for the
// host. They throw std::runtime_error naming operation, rank and the ranks that did something else when a peer fails,
// disagrees or is late, and std::invalid_argument when the arguments (a timeout that is not above 0 as well) are wrong
// on this rank alone; both leave outputs in an unspecified state. Reference: torch.distributed.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include <ddprun/comm/collective_options.h>
#include <ddprun/comm/pending.h>
#include <ddprun/comm/process_group.h>

namespace ddp {

/// Replaces `tensor` on every rank by the combination of all ranks' values.
void all_reduce(const at::Tensor& tensor, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
                const CollectiveOptions& options = {});
Pending<void> all_reduce_async(at::Tensor tensor, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
                               const CollectiveOptions& options = {});

/// all_reduce() of a whole list in one message per dtype and device. Non-contiguous tensors are allowed; every rank
/// needs the same list. From three ranks on the order of summation, and so the last bit, may differ from that of single
/// calls.
void all_reduce_coalesced(const std::vector<at::Tensor>& tensors, const GroupHandle& group,
                          ReduceOp op = ReduceOp::kSum, const CollectiveOptions& options = {});
Pending<void> all_reduce_coalesced_async(const std::vector<at::Tensor>& tensors, const GroupHandle& group,
                                         ReduceOp op = ReduceOp::kSum, const CollectiveOptions& options = {});

/// Like all_reduce(), but only rank `root` gets the result; the other ranks' tensors are left unspecified.
void reduce(at::Tensor tensor, int root, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
            const CollectiveOptions& options = {});
Pending<void> reduce_async(at::Tensor tensor, int root, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
                           const CollectiveOptions& options = {});

/// Combines `tensor`, of shape (group.size() * n, S…), over all ranks and returns this rank's part, of shape (n, S…):
/// rows rank * n to rank * n + n. `tensor` is left alone.
at::Tensor reduce_scatter(const at::Tensor& tensor, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
                          const CollectiveOptions& options = {});
Pending<at::Tensor> reduce_scatter_async(const at::Tensor& tensor, const GroupHandle& group,
                                         ReduceOp op = ReduceOp::kSum, const CollectiveOptions& options = {});

}  // namespace ddp

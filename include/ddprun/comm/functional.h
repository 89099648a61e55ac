// Collectives through which gradients flow: their inputs stay as they are, their outputs are new tensors in autograd's
// graph, and the backward is a collective of the same group. Reference: torch.distributed._functional_collectives of
// PyTorch 2.15 and, for broadcast, reduce, gather and scatter, torch.distributed.nn.functional.
//
// Every rank of the group must call the same ones in the same order with the same shapes and dtypes, and must run the
// backward through all of them: a rank whose loss does not use an output never calls the collective of its backward,
// and the others report after the timeout which one ("gradient of number 17") that rank did not take part in. The input
// must require a gradient on all ranks or on none. No gradient is divided by the number of ranks: docs/collectives.md
// says which scale it has.
//
// Inputs are tensors of any layout in memory on a device that the group has a backend for. All functions throw as those
// of collectives.h do; without gradient mode, or where no input requires a gradient, they record nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/pending.h>
#include <ddprun/comm/process_group.h>

namespace ddp::functional {

/// Returns the combination of all ranks' `input` on every rank, with the shape of `input`. The gradient is the
/// combination of all ranks' gradients by the same operation. For kMin and kMax it is the sum of the gradients, divided
/// equally among the elements (on all ranks) whose value is the result. A backward through kProduct throws
/// std::runtime_error.
at::Tensor all_reduce(const at::Tensor& input, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
                      const CollectiveOptions& options = {});
/// As all_reduce(), but returns at once; the tensor that Pending::wait() returns is in the graph. The other …_async
/// functions do the same.
Pending<at::Tensor> all_reduce_async(const at::Tensor& input, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
                                     const CollectiveOptions& options = {});
/// all_reduce() of each tensor of a list, in one message per dtype and device.
std::vector<at::Tensor> all_reduce_coalesced(const std::vector<at::Tensor>& inputs, const GroupHandle& group,
                                             ReduceOp op = ReduceOp::kSum, const CollectiveOptions& options = {});

/// All ranks' `input`, in rank order, concatenated along dimension `dim`; a tensor without dimensions counts as one of
/// shape (1). The gradient is the sum over all ranks of their gradients of this rank's part.
at::Tensor all_gather(const at::Tensor& input, const GroupHandle& group, int64_t dim = 0,
                      const CollectiveOptions& options = {});
/// As all_gather() along dimension 0, but returns at once.
Pending<at::Tensor> all_gather_async(const at::Tensor& input, const GroupHandle& group,
                                     const CollectiveOptions& options = {});
/// all_gather() of each tensor of a list along dimension 0.
std::vector<at::Tensor> all_gather_coalesced(const std::vector<at::Tensor>& inputs, const GroupHandle& group,
                                             const CollectiveOptions& options = {});

/// This rank's part of the combination of all ranks' `input`, which has group.size() equal parts along dimension `dim`.
/// The gradient is that of all ranks' parts, in rank order, for kAvg divided by group.size() (PyTorch refuses it). A
/// backward through kMin, kMax and kProduct throws std::runtime_error.
at::Tensor reduce_scatter(const at::Tensor& input, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
                          int64_t dim = 0, const CollectiveOptions& options = {});
/// As reduce_scatter() along dimension 0, but returns at once.
Pending<at::Tensor> reduce_scatter_async(const at::Tensor& input, const GroupHandle& group,
                                         ReduceOp op = ReduceOp::kSum, const CollectiveOptions& options = {});
/// reduce_scatter() of each tensor of a list along dimension 0.
std::vector<at::Tensor> reduce_scatter_coalesced(const std::vector<at::Tensor>& inputs, const GroupHandle& group,
                                                 ReduceOp op = ReduceOp::kSum, const CollectiveOptions& options = {});

/// Sends the i-th of group.size() equal parts of `input`, of shape (group.size() * n, S…), to rank i; returns the parts
/// that all ranks sent to this rank, in rank order. The gradients are sent back the same way.
at::Tensor all_to_all(const at::Tensor& input, const GroupHandle& group, const CollectiveOptions& options = {});
/// The same with input_split_sizes[i] rows for rank i and output_split_sizes[i] rows from it. The sizes that two ranks
/// give for each other must agree; this is not checked.
at::Tensor all_to_all(const at::Tensor& input, const std::vector<int64_t>& output_split_sizes,
                      const std::vector<int64_t>& input_split_sizes, const GroupHandle& group,
                      const CollectiveOptions& options = {});
/// As all_to_all() with equal parts, but returns at once.
Pending<at::Tensor> all_to_all_async(const at::Tensor& input, const GroupHandle& group,
                                     const CollectiveOptions& options = {});

/// Returns rank `root`'s `input` on every rank. The `input` of the other ranks has the same shape and dtype. The
/// gradient on `root` is the sum of all ranks' gradients, on the others it is zero.
at::Tensor broadcast(const at::Tensor& input, int root, const GroupHandle& group,
                     const CollectiveOptions& options = {});
/// The combination of all ranks' `input` on rank `root`, zeros on the others. The gradient on every rank is `root`'s,
/// for kAvg divided by group.size(). A backward through kMin, kMax and kProduct throws std::runtime_error.
at::Tensor reduce(const at::Tensor& input, int root, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
                  const CollectiveOptions& options = {});
/// All ranks' `input`, of shape (n, S…), as one tensor of shape (group.size() * n, S…) on rank `root`; zeros of that
/// shape on the other ranks, whose backward must run too. The gradient on each rank is its part of the gradient on
/// `root`.
at::Tensor gather(const at::Tensor& input, int root, const GroupHandle& group, const CollectiveOptions& options = {});
/// This rank's part, of shape (n, S…), of rank `root`'s `input`, of shape (group.size() * n, S…); the `input` of the
/// other ranks has the same shape and dtype. On `root` the gradient consists of the gradients of all parts; on the
/// other ranks it is zero.
at::Tensor scatter(const at::Tensor& input, int root, const GroupHandle& group, const CollectiveOptions& options = {});

}  // namespace ddp::functional

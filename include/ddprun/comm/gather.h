// Every rank's tensor at one place, and the reverse. Who must call, what is accepted and what is thrown: as for the
// reductions.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include <ddprun/comm/collective_options.h>
#include <ddprun/comm/pending.h>
#include <ddprun/comm/process_group.h>

namespace ddp {

/// Every rank's `tensor`, of shape S, as one new tensor of shape (group.size(), S…), in rank order.
at::Tensor all_gather(const at::Tensor& tensor, const GroupHandle& group, const CollectiveOptions& options = {});
Pending<at::Tensor> all_gather_async(const at::Tensor& tensor, const GroupHandle& group,
                                     const CollectiveOptions& options = {});

/// all_gather() of a whole list in one message per dtype and device: element i of the result is what all_gather() makes
/// of tensors[i]. Non-contiguous tensors are allowed.
std::vector<at::Tensor> all_gather_coalesced(const std::vector<at::Tensor>& tensors, const GroupHandle& group,
                                             const CollectiveOptions& options = {});

/// Every rank's `tensor`, of shape (n, S…) where n may differ from rank to rank and be 0, in rank order. Sends the
/// shapes first, so dtypes or further dimensions that differ are an error on every rank, with both ranks named. Costs
/// what gathering the longest from each rank costs.
std::vector<at::Tensor> all_gather_uneven(const at::Tensor& tensor, const GroupHandle& group,
                                          const CollectiveOptions& options = {});

/// The lengths have been exchanged when this returns; the values are under way.
Pending<std::vector<at::Tensor>> all_gather_uneven_async(const at::Tensor& tensor, const GroupHandle& group,
                                                         const CollectiveOptions& options = {});

/// On rank `root` every rank's `tensor`, of shape S, as one new tensor of shape (group.size(), S…); an undefined tensor
/// on the other ranks. All ranks call it.
at::Tensor gather(const at::Tensor& tensor, int root, const GroupHandle& group, const CollectiveOptions& options = {});
Pending<at::Tensor> gather_async(const at::Tensor& tensor, int root, const GroupHandle& group,
                                 const CollectiveOptions& options = {});

/// Overwrites `tensor` on rank i with rank `root`'s parts[i]. All ranks call it; `parts` is read on `root` alone, where
/// it needs one tensor of `tensor`'s shape and dtype per rank.
void scatter(at::Tensor tensor, const std::vector<at::Tensor>& parts, int root, const GroupHandle& group,
             const CollectiveOptions& options = {});
Pending<void> scatter_async(at::Tensor tensor, const std::vector<at::Tensor>& parts, int root, const GroupHandle& group,
                            const CollectiveOptions& options = {});

}  // namespace ddp

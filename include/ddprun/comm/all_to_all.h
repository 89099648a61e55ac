// Every rank sends a part to every other one. Who must call, what is accepted and what is thrown: as for the
// reductions; shapes may differ between ranks where parts may.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include <ddprun/comm/collective_options.h>
#include <ddprun/comm/pending.h>
#include <ddprun/comm/process_group.h>

namespace ddp {

/// Sends rows i * n to i * n + n of `tensor`, of shape (group.size() * n, S…), to rank i. Returns a tensor of the same
/// shape: what the ranks have sent to this one, in rank order.
at::Tensor all_to_all(const at::Tensor& tensor, const GroupHandle& group, const CollectiveOptions& options = {});
Pending<at::Tensor> all_to_all_async(const at::Tensor& tensor, const GroupHandle& group,
                                     const CollectiveOptions& options = {});

/// What all_to_all_uneven() received.
struct UnevenParts {
  at::Tensor tensor{};            ///< (sum of counts, S…)
  std::vector<int64_t> counts{};  ///< how many rows came from each rank
};

/// Sends the next counts[i] rows of `tensor` to rank i, in rank order; the counts may be 0 and must add up to the first
/// dimension. The receivers learn their counts from a small message ahead, and dtypes or further dimensions that differ
/// are an error on every rank, with both ranks named.
UnevenParts all_to_all_uneven(const at::Tensor& tensor, const std::vector<int64_t>& counts, const GroupHandle& group,
                              const CollectiveOptions& options = {});

/// Sends inputs[i] to rank i and overwrites outputs[i] with what rank i sent. One tensor per rank in each list; all of
/// one dtype and device; shapes are free, but outputs[i] must be as large as rank i's part for this rank.
void all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, const GroupHandle& group,
                const CollectiveOptions& options = {});

}  // namespace ddp

// Collective operations on tensors. Every rank of the group must call the same ones in the same order, from one thread
// at a time, with the same shapes and dtypes. Reference: torch.distributed.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/process_group.h"

namespace ddp {

/// How all_reduce() and reduce() combine the ranks' values. kAvg divides the sum by the group's size.
enum class ReduceOp { kSum, kAvg, kProduct, kMin, kMax };

/// Settings of one collective call.
struct CollectiveOptions {
  /// Longest wait for the other ranks; default: the group's timeout. On NCCL the call does not block, and the group's
  /// watchdog enforces the group's timeout instead.
  std::optional<std::chrono::milliseconds> timeout{};
};

// All of these: `tensor` is dense, contiguous, on a device that the group has a backend for, and owned by the caller,
// who must not touch it during the call. On CUDA the result is ready for the current stream, not yet for the host.
// Throw std::runtime_error naming operation, rank and size when a peer fails, disagrees or is late;
// std::invalid_argument when the arguments are wrong on this rank alone; both leave `tensor` in an unspecified state.

/// Replaces `tensor` on every rank by the combination of all ranks' values.
void all_reduce(at::Tensor tensor, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
                const CollectiveOptions& options = {});

/// Like all_reduce(), but only rank `root` gets the result; the other ranks' tensors are left unspecified.
void reduce(at::Tensor tensor, int root, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
            const CollectiveOptions& options = {});

/// Overwrites `tensor` on every rank with rank `root`'s values.
void broadcast(at::Tensor tensor, int root, const GroupHandle& group, const CollectiveOptions& options = {});

/// Overwrites all `tensors` with rank `root`'s, packed into messages of at most `buffer_bytes`. Non-contiguous ones are
/// allowed. All ranks need the same list.
void broadcast_coalesced(const std::vector<at::Tensor>& tensors, int root, const GroupHandle& group,
                         int64_t buffer_bytes = int64_t{250} << 20);

/// Every rank's `tensor`, of shape S, as one new tensor of shape (group.size(), S…), in rank order.
at::Tensor all_gather(const at::Tensor& tensor, const GroupHandle& group, const CollectiveOptions& options = {});

/// Returns when every rank has called it. With gloo, and between hosts always: blocks the calling thread, and on
/// timeout the error names the missing ranks.
void barrier(const GroupHandle& group, const CollectiveOptions& options = {});

/// Rank `root`'s text on every rank (the argument is ignored elsewhere).
std::string broadcast_string(const std::string& text, int root, const GroupHandle& group);

/// Every rank's text, in rank order, on every rank.
std::vector<std::string> all_gather_strings(const std::string& text, const GroupHandle& group);

}  // namespace ddp

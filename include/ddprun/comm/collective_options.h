// Settings that the collective operations share.
#pragma once

#include <chrono>
#include <optional>

namespace ddp {

/// How a reduction combines the ranks' values. kAvg divides the sum by the group's size and needs a floating-point or
/// complex dtype. Of bool tensors kSum and kMax are "any", kProduct and kMin are "all". Complex tensors have kSum and
/// kAvg only.
enum class ReduceOp { kSum, kAvg, kProduct, kMin, kMax };

/// Settings of one collective call.
struct CollectiveOptions {
  /// Longest wait for the other ranks; default: the group's timeout. On NCCL the call does not block, and the group's
  /// watchdog enforces the group's timeout instead.
  std::optional<std::chrono::milliseconds> timeout{};
};

}  // namespace ddp

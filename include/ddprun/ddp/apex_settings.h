// DistributedDataParallel with the settings of apex.parallel.DistributedDataParallel, for programs that used apex.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ddprun/comm/ddp_options.h>
#include <ddprun/comm/process_group.h>

namespace ddp {

/// apex's arguments, with its defaults. Its streams and communicators have no counterpart here.
struct ApexSettings {
  /// Smallest number of gradient elements that are reduced together.
  int64_t message_size = 10'000'000;
  /// Reduce everything in one piece per dtype when backward has computed all of it.
  bool delay_allreduce = false;
  /// Names of parameters whose gradients start the reduction of earlier gradients; message_size is then unused.
  std::vector<std::string> allreduce_trigger_params{};
  /// Divide by the number of ranks; false leaves the sum.
  bool gradient_average = true;
  /// Gradients are divided by this before the sum and, with gradient_average, multiplied by (this / number of ranks)
  /// afterwards, to avoid overflow.
  double gradient_predivide_factor = 1.0;
  /// Sum float16 and bfloat16 gradients as float32.
  bool allreduce_always_fp32 = false;
  /// Where to store the reduced flat buffers of each step, one per bucket, in the order of reduction; null: they are
  /// not stored.
  std::shared_ptr<std::vector<at::Tensor>> retain_allreduce_buffers{};
};

/// Returns options with which DistributedDataParallel behaves as `settings` describe. Options for which apex has no
/// setting are taken from `others`. Throws std::invalid_argument for settings that exclude each other, as apex does,
/// and for a comm_hook in `others`.
DdpOptions apex_options(const ApexSettings& settings, const GroupHandle& group, DdpOptions others = {});

}  // namespace ddp

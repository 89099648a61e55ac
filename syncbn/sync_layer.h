// Internal: the communication of one synchronised batch norm: its group, its name in messages, and the checks between
// ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include <ddprun/comm/process_group.h>

#include "syncbn/shadowed_collectives.h"

namespace ddp::detail {

class SyncLayer {
 public:
  /// `name` is the layer's path in its model, or empty.
  SyncLayer(GroupHandle group, std::string name, int64_t channels);

  const GroupHandle& group() const { return group_; }
  const std::string& name() const { return name_; }
  int64_t channels() const { return channels_; }
  /// Returns "rank R: SyncBatchNorm 'NAME'", the beginning of messages.
  std::string describe() const;

  /// Returns why this rank cannot process `input`; empty if it can.
  std::string objection(const at::Tensor& input) const;

  /// At the layer's first forward, compares the number of channels between the ranks. If they disagreed, a later
  /// collective would hang or mix up data. Every rank must call it. Returns the same description of the problem on
  /// every rank; empty if the ranks agree.
  std::string disagreement(const at::Tensor& input);

  /// Records the layer's collectives in `shadowed` from now on; null ends the recording. Must not be called during a
  /// forward or backward.
  void set_shadowed(std::shared_ptr<ShadowedCollectives> shadowed) { shadowed_ = std::move(shadowed); }
  void record(bool gather, const at::Tensor& tensor) const;

 private:
  const GroupHandle group_;
  const std::string name_;
  const int64_t channels_;
  std::atomic<bool> compared_{false};
  std::shared_ptr<ShadowedCollectives> shadowed_;
};

/// Returns a description for messages, for example "[8, 64, 7, 7] (Float, cpu)".
std::string shape_text(const at::Tensor& input);

}  // namespace ddp::detail

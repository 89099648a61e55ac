// Internal: one synchronised batch norm's place in the job: its group, its name in messages, and the checks between
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
  /// "rank R: SyncBatchNorm 'NAME'", the beginning of messages.
  std::string describe() const;

  /// Why this rank cannot take `input`; empty if it can.
  std::string objection(const at::Tensor& input) const;

  /// At the layer's first forward: compares the inputs' channels between the ranks, since a later collective of ranks
  /// that disagree would hang or mix up data. Every rank must call it. What is wrong, on every rank; empty if nothing.
  std::string disagreement(const at::Tensor& input);

  /// From now on the layer's collectives are added to `shadowed`; null ends that. Not during a forward or backward.
  void set_shadowed(std::shared_ptr<ShadowedCollectives> shadowed) { shadowed_ = std::move(shadowed); }
  void record(bool gather, const at::Tensor& tensor) const;

 private:
  const GroupHandle group_;
  const std::string name_;
  const int64_t channels_;
  std::atomic<bool> compared_{false};
  std::shared_ptr<ShadowedCollectives> shadowed_;
};

/// "[8, 64, 7, 7] (Float, cpu)", for messages.
std::string shape_text(const at::Tensor& input);

}  // namespace ddp::detail

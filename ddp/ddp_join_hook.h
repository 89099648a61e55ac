// What a rank without inputs does for a wrapped model while others still train. Reference: _DDPJoinHook.
#pragma once

#include <ddprun/detail/ddp/ddp_core.h>

namespace ddp {

class DdpJoinHook final : public JoinHook {
 public:
  DdpJoinHook(DdpCore& core, bool keep_gradients) : core_(core), keep_gradients_(keep_gradients) {}

  void main_hook() override;
  /// Takes the last joiner's parameters and buffers.
  void post_hook(bool is_last_joiner) override;

 private:
  DdpCore& core_;
  bool keep_gradients_;
};

}  // namespace ddp

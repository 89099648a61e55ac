// What a rank without inputs does for a wrapped model while others still train. Reference: _DDPJoinHook.
#pragma once

#include "ddp/ddp_core.h"

namespace ddp {

class DdpJoinHook final : public JoinHook {
 public:
  explicit DdpJoinHook(DdpCore& core) : core_(core) {}

  void main_hook() override;
  /// Takes the last joiner's parameters and buffers.
  void post_hook(bool is_last_joiner) override;

 private:
  DdpCore& core_;
};

}  // namespace ddp

// Whether an optimizer may have stepped: optimizers change shards past their version counters, by p.data() or fused
// kernels, but not without gradients. Does not use LibTorch.
#pragma once

#include <utility>

namespace ddp::fsdp {

class StepWatch {
 public:
  /// Gradients of shards are new.
  void note_gradients() { has_new_ = true; }

  /// Call at the begin of each forward. `has_gradients`: shards have some now, which the program may remove after a
  /// step. Whether there may have been a step since the last call.
  bool may_have_stepped(bool has_gradients) {
    const bool may = has_gradients || std::exchange(has_new_, false) || had_gradients_;
    had_gradients_ = has_gradients;
    return may;
  }

 private:
  bool has_new_ = false;
  bool had_gradients_ = false;
};

}  // namespace ddp::fsdp

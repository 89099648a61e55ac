// Gradients that are reduced in one piece when another parameter's gradient is there. Reference: the arguments
// delay_all_reduce_named_params and param_to_hook_all_reduce of Python's DDP.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ddprun/comm/ddp_options.h>
#include <ddprun/comm/gradient_bucket.h>
#include <ddprun/detail/comm/gradient_hook.h>

namespace ddp {

class DelayedReduction {
 public:
  /// `parameters` are all of one dtype and device. When `trigger`'s gradient is computed and `is_wanted()`, the means
  /// of their gradients over the ranks, reduced in one piece, are in p.grad() by the end of the backward. A backward in
  /// which one of theirs comes later than the trigger's throws std::runtime_error: `what` with its name.
  DelayedReduction(std::vector<at::Tensor> parameters, at::Tensor trigger, GroupHandle group,
                   std::function<bool()> is_wanted, std::string what, DelayedParameters names);
  ~DelayedReduction();
  DelayedReduction(const DelayedReduction&) = delete;
  DelayedReduction& operator=(const DelayedReduction&) = delete;

  /// Call after each forward. Waits for what a backward that failed has sent.
  void after_forward();

 private:
  struct State;
  std::shared_ptr<State> state_;  // the trigger's hook holds a weak reference
  at::Tensor trigger_;
  unsigned hook_;
  std::vector<GradientHook> arrivals_;
};

}  // namespace ddp

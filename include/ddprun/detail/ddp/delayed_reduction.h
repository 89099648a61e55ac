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

/// What a DelayedReduction asks about a backward.
struct DelayedReductionRules {
  /// Whether its gradients are reduced.
  std::function<bool()> is_wanted;
  /// Whether others of its gradients are still being reduced.
  std::function<bool()> is_busy;
  /// Whether ranks may use other parameters: then all of them reduce at the end of the backward, in one order.
  bool differs_among_ranks = false;
  /// Whether the group has ranks with Python's DDP, which reduces when the trigger comes and never else.
  bool has_python_ranks = false;
};

class DelayedReduction {
 public:
  /// `parameters` are all of one dtype and device. When `trigger`'s gradient is computed in a backward that is reduced,
  /// or at its end where the trigger gets none, the means of their gradients over the ranks are reduced in one piece
  /// and are in p.grad() after the backward. A parameter that no rank has used keeps its p.grad(). If one of these
  /// gradients is computed after that of the trigger, the backward throws a std::runtime_error with `what` and the
  /// parameter's name.
  DelayedReduction(std::vector<at::Tensor> parameters, at::Tensor trigger, GroupHandle group,
                   DelayedReductionRules rules, std::string what, DelayedParameters names);
  ~DelayedReduction();
  DelayedReduction(const DelayedReduction&) = delete;
  DelayedReduction& operator=(const DelayedReduction&) = delete;

  /// Call in a backward, where a gradient of it may not come on this rank.
  void begin_backward();
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

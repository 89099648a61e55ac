// The mark by which layers see that a module is wrapped in DistributedDataParallel, or an optimizer used by mixed
// precision, so that SyncBatchNorm conversion, mixed precision and a second wrapper can refuse what comes in the wrong
// order. It is a hook on the parameters' gradient accumulators: no registry, and it goes away with its owner.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include <ddprun/detail/comm/gradient_hook.h>

namespace torch::nn {
class Module;
}

namespace ddp {

/// Who put a mark.
enum class MarkKind { kDistributedDataParallel, kMixedPrecision };

/// Marks parameters as managed by a wrapper while it lives.
class WrappedParameters {
 public:
  /// Called with the index of a parameter and with the gradient that was accumulated into its p.grad(); undefined where
  /// the loss does not depend on the parameter.
  using AfterAccumulate = std::function<void(size_t parameter, const at::Tensor& incoming)>;

  /// `parameters` are leaves that require gradients. `after_accumulate`, if any, is called in the backward thread each
  /// time the gradient of one of them was accumulated.
  explicit WrappedParameters(const std::vector<at::Tensor>& parameters, AfterAccumulate after_accumulate = nullptr,
                             MarkKind kind = MarkKind::kDistributedDataParallel);
  /// GradientHook::keep() for each parameter: without it, a gradient would not be reduced after torch::load(). A node
  /// that is restored brings back all its hooks, c10d::Reducer's among them.
  void keep();

 private:
  std::vector<GradientHook> hooks_;
};

/// True when `parameter` has a mark of that kind.
bool is_marked(const at::Tensor& parameter, MarkKind kind);

/// True when a parameter of `module` or of its submodules is managed by a DistributedDataParallel that is alive.
bool is_wrapped(const torch::nn::Module& module);

/// Throws std::logic_error, saying that `step` (say, "convert_sync_batchnorm()") must be called before wrapping, if
/// is_wrapped(module).
void require_unwrapped(const torch::nn::Module& module, const std::string& step);
/// The same for the parameters of a model.
void require_unwrapped(const std::vector<at::Tensor>& parameters, const std::string& step);

}  // namespace ddp

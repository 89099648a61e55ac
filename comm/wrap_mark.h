// The mark by which other layers see that a module is wrapped in DistributedDataParallel, so that SyncBatchNorm
// conversion, mixed precision and a second wrapper can refuse what comes in the wrong order. It is a hook on the
// parameters' gradient accumulators: no registry, and it goes away with the wrapper.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace ddp {

/// Marks parameters as managed by a wrapper while it lives.
class WrapMark {
 public:
  /// `parameters` are leaves that require gradients. `after_accumulate`, if any, is called in the backward thread each
  /// time the gradient of one of them was accumulated.
  explicit WrapMark(const std::vector<at::Tensor>& parameters, std::function<void()> after_accumulate = nullptr);
  ~WrapMark();
  WrapMark(const WrapMark&) = delete;
  WrapMark& operator=(const WrapMark&) = delete;

 private:
  class Hooks;
  std::unique_ptr<Hooks> hooks_;
};

/// True when a parameter of `module` or of its submodules is managed by a DistributedDataParallel that is alive.
bool is_wrapped(const torch::nn::Module& module);

/// Throws std::logic_error, saying that `step` (say, "convert_sync_batchnorm()") has to come before wrapping, if
/// is_wrapped(module).
void require_unwrapped(const torch::nn::Module& module, const std::string& step);

}  // namespace ddp

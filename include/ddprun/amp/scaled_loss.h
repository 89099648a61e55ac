// The scope of one backward pass under mixed precision. Reference: apex.amp.scale_loss.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace ddp::amp {

/// Settings of one scale_loss(), all optional.
struct ScaleLossOptions {
  int loss_id = 0;  ///< which loss scale, 0 … num_losses-1
  /// Leave the gradients scaled: for all but the last backward pass of an accumulated step, and for those under
  /// DistributedDataParallel's no_sync(). A scale_loss() without it has to come before the step.
  bool delay_unscale = false;
  /// Divide, but leave the loss scale as it is; an overflow counts at the next scale_loss() of this loss, and the
  /// optimizers' next step is skipped nevertheless.
  bool delay_overflow_check = false;
};

namespace detail {
struct AmpState;
class OptimizerRecord;
}  // namespace detail

/// A loss times its scale; when it ends, the gradients of the optimizers are divided by the scale, in the masters where
/// there are some, and looked at for infinities and NaN. Amp::scale_loss() makes it.
class ScaledLoss {
 public:
  ScaledLoss(std::shared_ptr<detail::AmpState> state, const at::Tensor& loss,
             std::vector<detail::OptimizerRecord*> records, const ScaleLossOptions& options);
  /// finish(). An error is thrown by the next call to step() or scale_loss(). While an exception unwinds, the gradients
  /// that were there before come back instead.
  ~ScaledLoss();
  ScaledLoss(const ScaledLoss&) = delete;
  ScaledLoss& operator=(const ScaledLoss&) = delete;

  const at::Tensor& loss() const { return loss_; }
  operator const at::Tensor&() const { return loss_; }
  void backward() const { loss_.backward(); }

  /// Ends the scope now. The host waits for no device.
  void finish();

 private:
  std::shared_ptr<detail::AmpState> state_;
  at::Tensor loss_;
  std::vector<detail::OptimizerRecord*> records_;
  ScaleLossOptions options_;
  int exceptions_at_construction_;
  bool pass_through_ = false;
  bool finished_ = false;
};

}  // namespace ddp::amp

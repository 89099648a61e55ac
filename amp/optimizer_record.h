// The data that amp stores for one optimizer: float masters of its 16-bit parameters, gradients saved between backward
// passes, and whether the next step must be skipped. Reference: apex.amp._process_optimizer.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::amp::detail {

class OptimizerRecord {
 public:
  /// With `master_weights`, replaces the 16-bit parameters in the optimizer's groups by float copies, to which their
  /// optimizer state moves. All parameters must be float32 or have a 16-bit dtype.
  OptimizerRecord(torch::optim::Optimizer& optimizer, bool master_weights, std::string rank);

  torch::optim::Optimizer& optimizer() const { return *optimizer_; }

  /// Called before a backward pass. Saves and removes the existing gradients, so that the new ones can be
  /// distinguished.
  void prepare_backward();
  /// Called after the backward pass. Multiplies the new gradients by `inverse_scale` and adds them to the saved ones
  /// (for 16-bit parameters, to the masters' gradients). Returns one element per device, which is not 0 if a gradient
  /// there is infinite or NaN.
  std::vector<at::Tensor> finish_backward(const at::Tensor& inverse_scale);
  /// Replaces finish_backward(): the gradients stay scaled, and the next backward pass adds to them and finishes them.
  void keep_scaled_gradients() { scaled_gradients_ = true; }
  /// Replaces finish_backward() if the backward pass failed: restores the saved gradients.
  void abandon_backward();
  /// Clears all gradients, including scaled and saved ones, and the information whether they overflowed.
  void zero_grad();
  /// The next step() is skipped if `found_inf`, or that of an earlier call since the last step(), is not 0.
  void note(const at::Tensor& found_inf);

  /// Steps the optimizer, or skips the step, and copies the masters to the parameters. The host waits for the device
  /// only if an overflow is possible and the optimizer is not from ddp::optim.
  void step();

  /// Copies the parameters to the masters, unless the program has written to the masters or training has begun.
  void follow_model();
  /// Copies the masters to the parameters if the program has written to the masters.
  void update_model();
  void begin_training();

  const std::vector<at::Tensor>& parameters() const { return halves_; }  ///< the parameters that have a master
  const std::vector<at::Tensor>& masters() const { return masters_; }    ///< in the same order

 private:
  void adopt(at::Tensor& parameter);
  void copy_to_model();
  std::vector<int64_t> versions() const;

  torch::optim::Optimizer* optimizer_;
  std::string rank_;
  std::vector<at::Tensor> halves_, masters_;
  std::vector<int64_t> seen_versions_;       // versions of the masters when they were last equal to the parameters
  std::vector<at::Tensor> direct_;           // parameters without a master, which the optimizer steps directly
  std::vector<at::Tensor> saved_gradients_;  // the saved gradients of `direct_`
  bool training_ = false;
  bool scaled_gradients_ = false;
  at::Tensor found_inf_;  // undefined if no overflow is possible
};

}  // namespace ddp::amp::detail

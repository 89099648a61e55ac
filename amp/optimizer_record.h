// What amp knows of one optimizer: float masters of its 16-bit parameters, gradients put aside between backward passes,
// and whether the next step has to be skipped. Reference: apex.amp._process_optimizer.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::amp::detail {

class OptimizerRecord {
 public:
  /// With `master_weights` replaces 16-bit parameters in the optimizer's groups by float copies, which take their state
  /// over. All parameters are float32 or of 16 bits.
  OptimizerRecord(torch::optim::Optimizer& optimizer, bool master_weights, std::string rank);

  torch::optim::Optimizer& optimizer() const { return *optimizer_; }

  /// Before a backward pass: puts the gradients that are there aside, so that the new ones are distinguishable.
  void prepare_backward();
  /// After it: multiplies the new gradients by `inverse_scale` and adds them to those put aside (to the masters', for
  /// 16-bit parameters). Returns one element per device, not 0 where one is infinite or NaN.
  std::vector<at::Tensor> finish_backward(const at::Tensor& inverse_scale);
  /// Instead of it: the gradients stay scaled, for the next backward pass to add to and finish.
  void keep_scaled_gradients() { scaled_gradients_ = true; }
  /// Instead of it, when the backward pass failed: the gradients put aside come back.
  void abandon_backward();
  /// Forgets all gradients, also scaled ones and those put aside, and whether they overflowed.
  void zero_grad();
  /// The next step() is skipped if `found_inf` is not 0, or an earlier one was.
  void note(const at::Tensor& found_inf);

  /// Steps the optimizer, or skips, and brings the parameters up to date with their masters. The host waits for the
  /// device only if an overflow is possible and the optimizer is not one of ddp::optim's.
  void step();

  /// The masters' values become those of the parameters, unless someone has written to them, or training began.
  void follow_model();
  /// The parameters' values become those of their masters, if someone has written to these.
  void update_model();
  void begin_training();

  const std::vector<at::Tensor>& parameters() const { return halves_; }  ///< those with a master
  const std::vector<at::Tensor>& masters() const { return masters_; }    ///< in the same order

 private:
  void adopt(at::Tensor& parameter);
  void copy_to_model();
  std::vector<int64_t> versions() const;

  torch::optim::Optimizer* optimizer_;
  std::string rank_;
  std::vector<at::Tensor> halves_, masters_;
  std::vector<int64_t> seen_versions_;  // the masters', when they last equalled the parameters
  std::vector<at::Tensor> direct_;      // parameters that the optimizer steps as they are
  std::vector<at::Tensor> put_aside_;   // their gradients
  bool training_ = false;
  bool scaled_gradients_ = false;
  at::Tensor found_inf_;  // undefined: no overflow is possible
};

}  // namespace ddp::amp::detail

// A learning rate that may be a tensor of one element, as in Python's optimizers.
#pragma once

#include <ATen/core/Tensor.h>

namespace ddp::optim {

/// Options with a learning rate that may be a tensor of one element, shared with the program. A step reads the tensor
/// on its device, so the replay of a captured graph uses the current value. If there is a tensor, `get_lr()`,
/// `set_lr()`, schedules, checkpoints and archives read and write it, and `lr()` is not used.
class RateTensor {
 public:
  virtual ~RateTensor() = default;

  /// Returns the tensor. If it is undefined, the learning rate is the number lr().
  const at::Tensor& lr_tensor() const { return tensor_; }
  /// Throws std::invalid_argument for a tensor that is not finite, or that is negative unless `may_ascend` is set. With
  /// `may_ascend`, a tensor on a device is not read, so that the host does not wait.
  void check_rate(bool may_ascend) const;
  /// Writes the number, which was loaded, into the tensor if there is one.
  void number_to_tensor();
  /// Sets the number to the value of the tensor if there is one.
  void tensor_to_number();

 protected:
  /// Throws std::invalid_argument unless the tensor has one element of a floating-point dtype.
  void set_tensor(const at::Tensor& tensor);
  double rate() const;
  void set_rate(double rate);
  /// Returns the number that lr() refers to.
  virtual double& rate_number() = 0;

 private:
  at::Tensor tensor_{};
};

}  // namespace ddp::optim

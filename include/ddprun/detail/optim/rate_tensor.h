// A learning rate that is a tensor of one element, as Python's optimizers take it.
#pragma once

#include <ATen/core/Tensor.h>

namespace ddp::optim {

/// Options whose learning rate may be a tensor of one element, shared with the program: a step reads it on its device,
/// so that the replay of a captured graph sees what was written into it. `get_lr()` and `set_lr()` read and write the
/// tensor, where there is one, and so do schedules, checkpoints and archives; `lr()` is then not used.
class RateTensor {
 public:
  virtual ~RateTensor() = default;

  /// The tensor; undefined: the rate is the number lr().
  const at::Tensor& lr_tensor() const { return tensor_; }
  /// Throws std::invalid_argument for a tensor that is not finite, or negative unless `may_ascend`. With `may_ascend`
  /// a tensor on a device is not read, so that the host need not wait.
  void check_rate(bool may_ascend) const;
  /// Writes the number, which was loaded, into the tensor, if there is one.
  void number_to_tensor();
  /// Sets the number to what the tensor holds, if there is one.
  void tensor_to_number();

 protected:
  /// Throws std::invalid_argument unless it has one element of a floating-point type.
  void set_tensor(const at::Tensor& tensor);
  double rate() const;
  void set_rate(double rate);
  /// What lr() refers to.
  virtual double& rate_number() = 0;

 private:
  at::Tensor tensor_{};
};

}  // namespace ddp::optim

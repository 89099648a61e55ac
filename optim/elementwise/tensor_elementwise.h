// Implements Elementwise with ATen's operators on lists of tensors: for devices, and for layouts and dtypes that the
// block implementation does not support.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "optim/elementwise/elementwise.h"

namespace ddp::optim {

/// Updates several parameters in one call: `operands[i][j]` is operand i of parameter j. The lists are changed in
/// place.
class TensorElementwise final : public Elementwise {
 public:
  explicit TensorElementwise(std::vector<std::vector<at::Tensor>> operands) : operands_(std::move(operands)) {}

  Operand temporary() override;
  void copy(Operand to, Operand a) override;
  void neg(Operand to, Operand a) override;
  void abs(Operand to, Operand a) override;
  void sign(Operand to, Operand a) override;
  void sqrt(Operand to, Operand a) override;
  void rsqrt(Operand to, Operand a) override;
  void reciprocal(Operand to, Operand a) override;
  void mul(Operand to, Operand a, Operand b) override;
  void div(Operand to, Operand a, Operand b) override;
  void maximum(Operand to, Operand a, Operand b) override;
  void add(Operand to, Operand a, const UpdateScalar& number) override;
  void mul(Operand to, Operand a, const UpdateScalar& number) override;
  void mul(Operand to, const UpdateScalar& numbers, Operand a) override;
  void div(Operand to, Operand a, const UpdateScalar& number) override;
  void add(Operand to, Operand a, Operand b, const UpdateScalar& alpha) override;
  void addcmul(Operand to, Operand a, Operand b, Operand c, double value) override;
  void addcdiv(Operand to, Operand a, Operand b, Operand c, const UpdateScalar& value) override;
  void lerp(Operand to, Operand a, Operand end, const UpdateScalar& weight) override;
  void clamp(Operand to, Operand a, double lowest, double highest) override;
  void choose_by_sign(Operand to, Operand a, double above, double below) override;
  void zero_where(Operand to, Operand a, Operand key, double number) override;

 private:
  std::vector<at::Tensor>& list(Operand operand) { return operands_[static_cast<size_t>(operand)]; }
  void store(Operand to, std::vector<at::Tensor> results);

  std::vector<std::vector<at::Tensor>> operands_;
  size_t given_ = operands_.size();
};

}  // namespace ddp::optim

#include "ddprun/nn/weights.h"

#include <ATen/core/grad_mode.h>

#include <stdexcept>
#include <string>

#include "base/rank_prefix.h"

namespace ddp::nn {

namespace {

void convert(at::Tensor tensor, c10::ScalarType dtype) {
  if (!tensor.defined() || !tensor.is_floating_point() || tensor.scalar_type() == dtype) return;
  const auto gradient = tensor.grad();
  if (gradient.defined()) tensor.mutable_grad().reset();  // set_data() refuses a gradient of another dtype
  tensor.set_data(tensor.detach().to(dtype));
  if (gradient.defined()) tensor.mutable_grad() = gradient.detach().to(dtype);
}

}  // namespace

void to_dtype(torch::nn::Module& module, c10::ScalarType dtype) {
  if (!c10::isFloatingType(dtype)) {
    throw std::invalid_argument(rank_prefix() + "to_dtype: " + c10::toString(dtype) +
                                " is not a floating-point type; a module's weights need one");
  }
  const at::NoGradGuard no_grad;
  for (const auto& item : module.named_parameters()) convert(item.value(), dtype);
  for (const auto& item : module.named_buffers()) convert(item.value(), dtype);
}

}  // namespace ddp::nn

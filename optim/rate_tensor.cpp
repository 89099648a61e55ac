#include "ddprun/detail/optim/rate_tensor.h"

#include <c10/core/ScalarType.h>

#include <cmath>
#include <sstream>
#include <stdexcept>

#include "base/rank_prefix.h"
#include "optim/groups.h"

namespace ddp::optim {

void RateTensor::check_rate(bool may_ascend) const {
  if (!tensor_.defined() || (may_ascend && !tensor_.is_cpu())) return;
  const auto value = tensor_.item<double>();
  require_value(may_ascend || value >= 0, "Invalid learning rate", value);
}

void RateTensor::number_to_tensor() {
  if (tensor_.defined()) tensor_.fill_(rate_number());
}

void RateTensor::tensor_to_number() {
  if (tensor_.defined()) rate_number() = tensor_.item<double>();
}

void RateTensor::set_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    tensor_.reset();
    return;
  }
  if (tensor.numel() != 1 || !at::isFloatingType(tensor.scalar_type())) {
    std::ostringstream text;
    text << rank_prefix() << "Tensor lr must be 1-element: expected one floating-point number, got "
         << tensor.scalar_type() << " of shape " << tensor.sizes();
    throw std::invalid_argument(text.str());
  }
  tensor_ = tensor.detach().squeeze();
}

double RateTensor::rate() const {
  return tensor_.defined() ? tensor_.item<double>() : const_cast<RateTensor&>(*this).rate_number();
}

void RateTensor::set_rate(double rate) {
  rate_number() = rate;
  number_to_tensor();
}

}  // namespace ddp::optim

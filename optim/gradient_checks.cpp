#include "optim/gradient_checks.h"

#include <ATen/MemoryOverlap.h>
#include <c10/core/ScalarType.h>

#include <sstream>
#include <stdexcept>

#include "base/rank_prefix.h"

namespace ddp::optim {
namespace {

void check_gradient(const at::Tensor& parameter, const at::Tensor& gradient, const std::string& type) {
  const bool supported_device = parameter.is_cpu() || parameter.is_cuda();
  if (!supported_device || !at::isFloatingType(parameter.scalar_type())) {
    throw std::invalid_argument(rank_prefix() + type +
                                ": `fused=True` requires all the params to be floating point Tensors of supported "
                                "devices: ['cpu', 'cuda'] but " +
                                c10::toString(parameter.scalar_type()) + " and " +
                                c10::DeviceTypeName(parameter.device().type(), true));
  }
  if (at::has_internal_overlap(parameter) == at::MemOverlap::Yes) {
    std::ostringstream text;
    text << rank_prefix() << type << ": a parameter of shape " << parameter.sizes()
         << " has elements that share memory, as after expand(), and cannot be changed in place: clone() it";
    throw std::invalid_argument(text.str());
  }
  if (gradient.layout() != at::kStrided) {
    throw std::invalid_argument(rank_prefix() + type + " does not support sparse gradients");
  }
  if (gradient.scalar_type() != parameter.scalar_type() || gradient.device() != parameter.device() ||
      gradient.sizes() != parameter.sizes()) {
    std::ostringstream text;
    text << rank_prefix() << type << ": a gradient is " << gradient.scalar_type() << " of shape " << gradient.sizes()
         << " on " << gradient.device() << ", but its parameter " << parameter.scalar_type() << " of shape "
         << parameter.sizes() << " on " << parameter.device();
    throw std::invalid_argument(text.str());
  }
}

}  // namespace

void check_gradients(const std::vector<torch::optim::OptimizerParamGroup>& groups, const std::string& type) {
  for (const auto& group : groups) {
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined()) check_gradient(parameter, parameter.grad(), type);
    }
  }
}

}  // namespace ddp::optim

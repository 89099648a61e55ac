#include "ddp/parameter_snapshot.h"

#include <sstream>
#include <stdexcept>
#include <utility>

namespace ddp {

void refuse_changed_model(const std::string& rank, const std::string& what) {
  throw std::runtime_error(
      rank + ": " + what +
      " after the model was wrapped in DistributedDataParallel, whose gradient buckets do not include the change. "
      "Change the model before wrapping it, or wrap it again on all ranks.");
}

ParameterSnapshot::ParameterSnapshot(std::string name, const at::Tensor& tensor) : name_(std::move(name)) {
  if (!tensor.defined()) return;
  identity_ = tensor.unsafeGetTensorImpl();
  dtype_ = tensor.scalar_type();
  device_ = tensor.device();
  requires_grad_ = tensor.requires_grad();
  sizes_ = tensor.sizes().vec();
}

bool ParameterSnapshot::is_same(const at::Tensor& now) const {
  if (!now.defined()) return identity_ == nullptr;
  return identity_ == now.unsafeGetTensorImpl() && dtype_ == now.scalar_type() && device_ == now.device() &&
         (requires_grad_ || !now.requires_grad()) && now.sizes() == sizes_;
}

void ParameterSnapshot::refuse(const at::Tensor& now, const std::string& rank) const {
  std::ostringstream text;
  text << "parameter '" << name_ << "' ";
  if (!now.defined() || identity_ != now.unsafeGetTensorImpl()) {
    text << "was replaced";
  } else if (dtype_ != now.scalar_type()) {
    text << "was cast from " << dtype_ << " to " << now.scalar_type();
  } else if (device_ != now.device()) {
    text << "was moved from " << device_ << " to " << now.device();
  } else if (now.sizes() != sizes_) {
    text << "was resized from " << c10::IntArrayRef(sizes_) << " to " << now.sizes();
  } else {
    throw std::runtime_error(
        rank + ": parameter '" + name_ +
        "' was frozen when the model was wrapped in DistributedDataParallel and requires gradients now, which would "
        "not be averaged over the ranks. Freeze it after wrapping the model, or destroy the wrapper and wrap the model "
        "again on all ranks.");
  }
  refuse_changed_model(rank, text.str());
}

}  // namespace ddp

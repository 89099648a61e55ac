#include "amp/unscale.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>

#include <ddprun/comm/collectives.h>
#include <ddprun/detail/comm/device_copy.h>

namespace ddp::amp::detail {
namespace {

at::Tensor zero(c10::Device device) {
  return at::zeros({}, at::TensorOptions(device).dtype(at::kFloat));
}

}  // namespace

at::Tensor inverse_of(const at::Tensor& scale) {
  return scale.to(at::kDouble).reciprocal().to(at::kFloat);
}

at::Tensor& PerDevice::on(c10::Device device) {
  const auto found =
      std::find_if(copies_.begin(), copies_.end(), [&](const auto& item) { return item.first == device; });
  if (found != copies_.end()) return found->second;
  copies_.emplace_back(device, copy_on_device(original_, device));
  return copies_.back().second;
}

std::vector<at::Tensor> PerDevice::copies() const {
  std::vector<at::Tensor> tensors;
  for (const auto& [device, tensor] : copies_) tensors.push_back(tensor);
  return tensors;
}

std::vector<at::Tensor> unscale(const std::vector<at::Tensor>& gradients, const at::Tensor& inverse_scale) {
  // The kernel accepts tensors of one device and dtype.
  std::vector<std::pair<std::pair<c10::Device, at::ScalarType>, std::vector<at::Tensor>>> groups;
  for (const at::Tensor& gradient : gradients) {
    const std::pair key{gradient.device(), gradient.scalar_type()};
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& item) { return item.first == key; });
    if (group == groups.end()) group = groups.insert(groups.end(), {key, {}});
    group->second.push_back(gradient);
  }
  PerDevice inverse(inverse_scale);
  PerDevice found_inf(zero(inverse_scale.device()));
  for (const auto& [key, tensors] : groups) {
    at::_amp_foreach_non_finite_check_and_unscale_(tensors, found_inf.on(key.first), inverse.on(key.first));
  }
  return found_inf.copies();
}

at::Tensor combine(const std::vector<at::Tensor>& found_infs, c10::Device device) {
  at::Tensor sum = zero(device);
  for (const at::Tensor& found_inf : found_infs) sum.add_(to_device(found_inf, device));
  return sum;
}

void agree(std::vector<at::Tensor>& found_infs, c10::Device device, const GroupHandle& group) {
  const at::Tensor any = combine(found_infs, device).reshape({1});
  all_reduce(any, group, ReduceOp::kMax);
  if (found_infs.empty()) found_infs.push_back(zero(device));
  for (at::Tensor& found_inf : found_infs) copy_into(found_inf, any.squeeze(0));
}

}  // namespace ddp::amp::detail

#include "ddprun/amp/autocast.h"

#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <torch/cuda.h>

#include <algorithm>
#include <stdexcept>

#include "base/rank_prefix.h"

namespace ddp {
namespace {

constexpr std::array<c10::DeviceType, 2> kPropagatedDeviceTypes{c10::kCPU, c10::kCUDA};

void enter_scope() {
  at::autocast::increment_nesting();
}

void leave_scope() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
}

// Whether autocast can be enabled on the device. If not, prints the same warning as Python.
bool usable(c10::DeviceType device, c10::ScalarType dtype) {
  if (device == c10::kCUDA) {
    if (torch::cuda::is_available()) return true;
    TORCH_WARN("CUDA is not available. Disabling autocast.");
    return false;
  }
  if (dtype == c10::kHalf || dtype == c10::kBFloat16) return true;
  TORCH_WARN("In ", c10::DeviceTypeName(device), " autocast, but the target dtype ", dtype,
             " is not supported. Disabling autocast.\n", c10::DeviceTypeName(device),
             " Autocast only supports dtypes of BFloat16, Half currently.");
  return false;
}

c10::DeviceType require_supported(c10::DeviceType device) {
  const auto& supported = at::autocast::_AUTOCAST_SUPPORTED_DEVICES;
  if (std::find(supported.begin(), supported.end(), device) == supported.end()) {
    throw std::runtime_error(rank_prefix() + "User specified an unsupported autocast device_type '" +
                             c10::DeviceTypeName(device, /*lower_case=*/true) + "'");
  }
  return device;
}

}  // namespace

Autocast::Autocast(c10::DeviceType device, const AutocastOptions& options)
    : device_(require_supported(device)),
      previous_enabled_(at::autocast::is_autocast_enabled(device)),
      previous_dtype_(at::autocast::get_autocast_dtype(device)),
      previous_cache_(at::autocast::is_autocast_cache_enabled()) {
  const c10::ScalarType dtype = options.dtype.value_or(previous_dtype_);
  const bool enabled = options.enabled && usable(device, dtype);
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_dtype(device, dtype);
  enter_scope();
  at::autocast::set_autocast_cache_enabled(options.cache.value_or(previous_cache_));
}

Autocast::~Autocast() {
  leave_scope();
  at::autocast::set_autocast_enabled(device_, previous_enabled_);
  at::autocast::set_autocast_dtype(device_, previous_dtype_);
  at::autocast::set_autocast_cache_enabled(previous_cache_);
}

AutocastState AutocastState::current() {
  AutocastState state;
  for (size_t i = 0; i < kPropagatedDeviceTypes.size(); ++i) {
    state.settings_[i] = {at::autocast::is_autocast_enabled(kPropagatedDeviceTypes[i]),
                          at::autocast::get_autocast_dtype(kPropagatedDeviceTypes[i])};
  }
  state.cache_ = at::autocast::is_autocast_cache_enabled();
  return state;
}

void AutocastState::apply() const {
  for (size_t i = 0; i < kPropagatedDeviceTypes.size(); ++i) {
    at::autocast::set_autocast_enabled(kPropagatedDeviceTypes[i], settings_[i].enabled);
    at::autocast::set_autocast_dtype(kPropagatedDeviceTypes[i], settings_[i].dtype);
  }
  at::autocast::set_autocast_cache_enabled(cache_);
}

AutocastStateScope::AutocastStateScope(const AutocastState& state) : previous_(AutocastState::current()) {
  state.apply();
  enter_scope();
}

AutocastStateScope::~AutocastStateScope() {
  leave_scope();
  previous_.apply();
}

}  // namespace ddp

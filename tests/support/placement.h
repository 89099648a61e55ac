// Where a test's tensors lie: on the CPU, or with DDPRUN_TEST_ON_DEVICES=1 on simulated devices
// (tests/support/device/), of which each rank has one. So one source tests both.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdlib>

namespace ddp::test {

inline bool is_on_devices() {
  static const bool asked = std::getenv("DDPRUN_TEST_ON_DEVICES") != nullptr;
  return asked;
}

/// The calling thread's current CUDA device where tests are for devices, else the CPU.
inline c10::Device test_device() {
  return is_on_devices() ? c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice() : c10::Device(c10::kCPU);
}

/// The tensor, or a copy of it, on the test's device. The host waits for nothing.
inline at::Tensor here(const at::Tensor& tensor) {
  return tensor.to(test_device(), /*non_blocking=*/true);
}

/// The module, moved there.
template <typename Holder>
Holder placed(Holder module) {
  module->to(test_device());
  return module;
}

}  // namespace ddp::test

// The device's operators. Each file registers its own.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace ddp::test::device {

/// Memory and views (tensors.cpp).
void register_tensors(torch::Library& aten);
/// Between host and devices (copies.cpp).
void register_copies(torch::Library& aten);
/// What only GPUs have, made of other operators (composed.cpp).
void register_composed(torch::Library& aten);
/// Those that LibTorch would put together from others although the CPU has a kernel (fallback.cpp).
void register_whole_kernels(torch::Library& aten);

/// What autocast does with which operator, for its PrivateUse1 key (autocast.cpp).
void register_autocast(torch::Library& m);

/// Any other operator: the CPU's kernel, in the order of the current stream.
void run_cpu_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack);

at::Tensor empty_on(c10::Device device, c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype);
void resize_memory(const at::Tensor& tensor, c10::IntArrayRef sizes);

}  // namespace ddp::test::device

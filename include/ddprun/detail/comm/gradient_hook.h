// A function that autograd calls when a parameter's gradient is complete.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace torch::autograd {
struct FunctionPostHook;
}

namespace ddp {

/// While it lives, `hook` is called after each accumulation into `parameter.grad()`, in the thread that runs the
/// backward. What it throws reaches the caller of backward(), if it derives from std::exception. `parameter` is a leaf
/// that requires gradients, else std::invalid_argument is thrown. Move-only.
class GradientHook {
 public:
  GradientHook(const at::Tensor& parameter, std::function<void()> hook);
  GradientHook(const at::Tensor& parameter, std::unique_ptr<torch::autograd::FunctionPostHook> hook);
  ~GradientHook();
  GradientHook(GradientHook&& other) noexcept;
  GradientHook& operator=(GradientHook&& other) = delete;

  /// Restores the hook if autograd has forgotten it: torch::load() and Tensor::set_() give a parameter other memory,
  /// and with it a new accumulator without hooks. Call before each forward; the parameter's size and dtype must be
  /// unchanged. Some nanoseconds. Nothing after a move.
  void keep();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // null after a move
};

}  // namespace ddp

// A function that autograd calls when a parameter's gradient is complete.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace ddp {

/// While it lives, `hook` is called after each accumulation into `parameter.grad()`, in the thread that runs the
/// backward. What it throws reaches the caller of backward(), if it derives from std::exception. `parameter` is a leaf
/// that requires gradients. Move-only.
class GradientHook {
 public:
  GradientHook(const at::Tensor& parameter, std::function<void()> hook);
  ~GradientHook();
  GradientHook(GradientHook&& other) noexcept;
  GradientHook& operator=(GradientHook&& other) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // null after a move
};

}  // namespace ddp

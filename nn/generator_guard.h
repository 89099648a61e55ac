// Leaves the random numbers of a program as they are.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace ddp::nn::detail {

/// While it lives, numbers may be drawn from the CPU's default generator; with its end the generator has the state from
/// before. Copies of modules need it: LibTorch's clone() draws values for parameters that it then overwrites.
class GeneratorGuard {
 public:
  GeneratorGuard();
  ~GeneratorGuard();
  GeneratorGuard(const GeneratorGuard&) = delete;
  GeneratorGuard& operator=(const GeneratorGuard&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

}  // namespace ddp::nn::detail

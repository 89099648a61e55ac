// Newton–Schulz iterations in bfloat16, with the bits of torch.optim.Muon's.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace ddp::optim {

/// Approximates for a matrix the nearest one whose singular values are all near 1.
class NewtonSchulz {
 public:
  NewtonSchulz(std::array<double, 3> coefficients, int64_t steps, double eps)
      : coefficients_(coefficients), steps_(steps), eps_(eps) {}

  /// Calls `use` with the index of each matrix and its result in bfloat16, which is valid during that call. The
  /// matrices have one shape; several of them must be small and contiguous.
  void for_each(const std::vector<at::Tensor>& matrices, const std::function<void(size_t, const at::Tensor&)>& use);

 private:
  /// Results and intermediate products, for one shape.
  struct Buffers {
    at::Tensor gram{}, polynomial{};
    std::array<at::Tensor, 2> results{};

    /// The shape of a matrix, or of a stack of matrices, with at most as many rows as columns.
    void allocate_for(const at::Tensor& matrix);
  };

  void normalize(at::Tensor matrix) const;
  at::Tensor iterate(at::Tensor result, Buffers& buffers) const;
  at::Tensor of_one(const at::Tensor& matrix);
  at::Tensor of_stack(const std::vector<at::Tensor>& matrices);

  const std::array<double, 3> coefficients_;
  const int64_t steps_;
  const double eps_;
  Buffers of_one_, of_stack_;
};

}  // namespace ddp::optim

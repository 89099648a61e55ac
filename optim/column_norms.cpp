#include "optim/column_norms.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "optim/elementwise/kernels.h"

namespace ddp::optim {
namespace {

constexpr int64_t kPiece = 512;

// Like ATen, adds the squares of a column one after another and rounds each of them.
template <typename T>
void norms_of_columns(const T* matrix, T* norms, int64_t rows, int64_t columns) {
  const Kernels<T>& kernel = kernels<T>();
  std::array<T, kPiece> squares;
  std::fill_n(norms, columns, T(0));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t at = 0; at < columns; at += kPiece) {
      const auto size = static_cast<size_t>(std::min(kPiece, columns - at));
      const T* numbers = matrix + row * columns + at;
      kernel.multiply(squares.data(), numbers, numbers, size);
      kernel.add_scaled(norms + at, norms + at, squares.data(), 1, size, size);
    }
  }
  std::transform(norms, norms + columns, norms, [](T sum) { return std::sqrt(sum); });
}

bool are_read_by_rows(const at::Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  // ATen divides a single long column among its threads, and it does not square the elements of a single row.
  return tensor.is_cpu() && (dtype == at::kFloat || dtype == at::kDouble) && tensor.is_contiguous() &&
         !tensor.is_neg() && tensor.numel() != tensor.size(-2) && tensor.size(-2) != 1;
}

}  // namespace

at::Tensor column_norms(const at::Tensor& tensor) {
  if (!are_read_by_rows(tensor)) return at::linalg_vector_norm(tensor, 2, -2, /*keepdim=*/true);
  const int64_t rows = tensor.size(-2), columns = tensor.size(-1);
  std::vector<int64_t> shape = tensor.sizes().vec();
  *(shape.end() - 2) = 1;
  at::Tensor norms = at::empty(shape, tensor.options());
  AT_DISPATCH_FLOATING_TYPES(tensor.scalar_type(), "column_norms", [&] {
    const auto* matrix = tensor.const_data_ptr<scalar_t>();
    auto* to = norms.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < norms.numel(); i += columns) norms_of_columns(matrix + i * rows, to + i, rows, columns);
  });
  return norms;
}

}  // namespace ddp::optim

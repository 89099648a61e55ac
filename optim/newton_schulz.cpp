#include "optim/newton_schulz.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>

#include <cstring>

namespace ddp::optim {
namespace {

// For fewer matrices the check of the first one costs more than the stack saves.
constexpr size_t kMinStacked = 4;

bool is_tall(const at::Tensor& matrix) {
  return matrix.size(0) > matrix.size(1);
}

bool has_equal_bits(const at::Tensor& left, const at::Tensor& right) {
  return left.is_contiguous() && right.is_contiguous() &&
         std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

}  // namespace

void NewtonSchulz::Buffers::allocate_for(const at::Tensor& matrix) {
  if (results[0].defined() && results[0].sizes() == matrix.sizes()) return;
  std::vector<int64_t> square = matrix.sizes().vec();
  square.back() = square.end()[-2];
  for (auto* each : {&gram, &polynomial}) *each = at::empty(square, matrix.options());
  for (auto& each : results) each = at::empty(matrix.sizes(), matrix.options());
}

void NewtonSchulz::normalize(at::Tensor matrix) const {
  matrix.div_(at::linalg_vector_norm(matrix, 2).clamp_min(eps_));
}

at::Tensor NewtonSchulz::iterate(at::Tensor result, Buffers& buffers) const {
  const auto [a, b, c] = coefficients_;
  buffers.allocate_for(result);
  const auto& [gram, polynomial, results] = buffers;
  for (int64_t i = 0; i < steps_; ++i) {
    const bool is_stack = result.dim() == 3;
    at::Tensor squares = gram, sum = polynomial, next = results[static_cast<size_t>(i % 2)];
    is_stack ? at::bmm_out(squares, result, result.mT()) : at::mm_out(squares, result, result.t());
    is_stack ? at::baddbmm_out(sum, gram, gram, gram, b, c) : at::addmm_out(sum, gram, gram, gram, b, c);
    is_stack ? at::baddbmm_out(next, result, sum, result, a) : at::addmm_out(next, result, sum, result, a);
    result = next;
  }
  return result;
}

at::Tensor NewtonSchulz::of_one(const at::Tensor& matrix) {
  at::Tensor result = matrix.to(at::kBFloat16, /*non_blocking=*/false, /*copy=*/true);
  if (is_tall(matrix)) result = result.t();
  normalize(result);
  return iterate(result, of_one_);
}

// Only the products are computed for all matrices at once: other operators compute the last elements of a bfloat16
// tensor differently.
at::Tensor NewtonSchulz::of_stack(const std::vector<at::Tensor>& matrices) {
  const at::Tensor& first = matrices.front();
  at::Tensor result = at::empty({static_cast<int64_t>(matrices.size()), first.size(0), first.size(1)},
                                first.options().dtype(at::kBFloat16));
  for (size_t i = 0; i < matrices.size(); ++i) result.select(0, static_cast<int64_t>(i)).copy_(matrices[i]);
  if (is_tall(first)) result = result.mT();
  for (int64_t i = 0; i < result.size(0); ++i) normalize(result.select(0, i));
  return iterate(result, of_stack_);
}

// LibTorch does not promise that a batch of products has the bits of single ones, which Python computes. On a processor
// where it chooses other kernels for batches, the first matrix shows it.
void NewtonSchulz::for_each(const std::vector<at::Tensor>& matrices,
                            const std::function<void(size_t, const at::Tensor&)>& use) {
  const auto oriented = [&](const at::Tensor& result) { return is_tall(matrices.front()) ? result.t() : result; };
  if (matrices.size() >= kMinStacked && steps_ > 0) {
    const at::Tensor results = of_stack(matrices);
    if (has_equal_bits(of_one(matrices.front()), results.select(0, 0))) {
      for (size_t i = 0; i < matrices.size(); ++i) use(i, oriented(results.select(0, static_cast<int64_t>(i))));
      return;
    }
  }
  for (size_t i = 0; i < matrices.size(); ++i) use(i, oriented(of_one(matrices[i])));
}

}  // namespace ddp::optim

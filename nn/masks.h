// Attention masks in the form that Python uses for computations.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace ddp::nn::detail {

/// Returns `mask` as numbers that are added to the scores. A bool mask becomes a mask of `dtype` with −∞ where it is
/// true. Floating-point and undefined masks are returned unchanged. Throws std::invalid_argument, with `name`, for
/// integers.
at::Tensor additive_mask(const at::Tensor& mask, const char* name, at::ScalarType dtype);

bool has_floats(const at::Tensor& mask);

/// Returns a (size, size) mask with −∞ above the diagonal and 0 elsewhere.
at::Tensor causal_mask(int64_t size, const at::TensorOptions& options);

/// Returns `is_causal` if it has a value; otherwise whether `mask` is the causal mask for sequences of length `size`.
bool is_causal_mask(const at::Tensor& mask, std::optional<bool> is_causal, int64_t size);

/// Returns the length of the sequences in `x`, which is (S, E), (S, N, E) or, with batch_first, (N, S, E).
int64_t sequence_length(const at::Tensor& x, bool batch_first);

}  // namespace ddp::nn::detail

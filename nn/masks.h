// Masks of attention in the form that Python computes with.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace ddp::nn::detail {

/// `mask` as numbers that are added to scores: one of bool becomes −∞ where it is true, of `dtype`; others and
/// undefined ones stay. Throws std::invalid_argument, with `name`, for integers.
at::Tensor additive_mask(const at::Tensor& mask, const char* name, at::ScalarType dtype);

bool has_floats(const at::Tensor& mask);

/// (size, size), −∞ above the diagonal and 0 elsewhere.
at::Tensor causal_mask(int64_t size, const at::TensorOptions& options);

/// `is_causal`, or else whether `mask` is the causal mask of a sequence of `size`.
bool is_causal_mask(const at::Tensor& mask, std::optional<bool> is_causal, int64_t size);

/// Length of the sequences in `x`, (S, E) or (S, N, E) or with batch_first (N, S, E).
int64_t sequence_length(const at::Tensor& x, bool batch_first);

}  // namespace ddp::nn::detail

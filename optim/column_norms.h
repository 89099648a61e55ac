// The norms of a matrix's columns.
#pragma once

#include <ATen/core/Tensor.h>

namespace ddp::optim {

/// Computes torch.linalg.vector_norm(tensor, dim=-2, keepdim=True) bit by bit. Contiguous float32 and float64 tensors
/// on the CPU are read row by row. For large tensors this is many times faster than ATen, which reads them column by
/// column.
at::Tensor column_norms(const at::Tensor& tensor);

}  // namespace ddp::optim

// The norms of a matrix's columns.
#pragma once

#include <ATen/core/Tensor.h>

namespace ddp::optim {

/// torch.linalg.vector_norm(tensor, dim=-2, keepdim=True), with its bits. Contiguous tensors of float32 and float64 on
/// the CPU are read row by row, which is many times faster for large ones: ATen reads them column by column.
at::Tensor column_norms(const at::Tensor& tensor);

}  // namespace ddp::optim

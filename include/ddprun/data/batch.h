// What a dataset gives for a list of sample indices.
#pragma once

#include <ATen/core/Tensor.h>

namespace ddp {

/// Samples and what a model should give for them, both tensors with the batch as their first dimension.
struct Batch {
  at::Tensor data;    ///< the samples, first dimension the batch; images are float32 (N, C, H, W)
  at::Tensor target;  ///< what the model should give; class indices are int64 (N)
};

}  // namespace ddp

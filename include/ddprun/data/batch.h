// What a dataset gives for a list of sample indices.
#pragma once

#include <ATen/core/Tensor.h>

namespace ddp {

/// Samples and their targets. The first dimension of both tensors is the batch.
struct Batch {
  at::Tensor data;    ///< the samples; images are float32 (N, C, H, W)
  at::Tensor target;  ///< what the model should predict; class indices are int64 (N)
};

}  // namespace ddp

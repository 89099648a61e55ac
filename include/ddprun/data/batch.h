// What a dataset gives for a list of sample indices.
#pragma once

#include <ATen/core/Tensor.h>

namespace ddp {

struct Batch {
  at::Tensor data;    ///< the samples, first dimension the batch; images are float32 (N, C, H, W)
  at::Tensor target;  ///< what the model should give; class indices are int64 (N)
};

}  // namespace ddp

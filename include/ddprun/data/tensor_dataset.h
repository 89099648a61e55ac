// Samples that are in memory as tensors already.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include <ddprun/data/batch.h>

namespace ddp {

/// As torch.utils.data.TensorDataset with two tensors. Safe from several threads; copies share the tensors.
class TensorDataset {
 public:
  /// `data` (N, …) and `target` (N, …), on one device. Throws std::invalid_argument when their first dimensions differ.
  TensorDataset(at::Tensor data, at::Tensor target);

  int64_t size() const { return data_.size(0); }

  /// These samples, in this order, freshly allocated on the tensors' device. Throws std::out_of_range.
  Batch get_batch(std::span<const int64_t> indices) const;

 private:
  at::Tensor data_;
  at::Tensor target_;
};

}  // namespace ddp

#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>

#include <sstream>
#include <stdexcept>
#include <utility>

#include "ddprun/data/datasets.h"

namespace ddp {

TensorDataset::TensorDataset(at::Tensor data, at::Tensor target) : data_(std::move(data)), target_(std::move(target)) {
  if (data_.dim() > 0 && target_.dim() > 0 && data_.size(0) == target_.size(0)) return;
  std::ostringstream text;
  text << "TensorDataset: expected a target for each sample, got data " << data_.sizes() << " and target "
       << target_.sizes();
  throw std::invalid_argument(text.str());
}

Batch TensorDataset::get_batch(std::span<const int64_t> indices) const {
  for (const int64_t index : indices) {
    if (index >= 0 && index < size()) continue;
    throw std::out_of_range("TensorDataset: index " + std::to_string(index) + " is out of range for " +
                            std::to_string(size()) + " samples");
  }
  const at::Tensor rows = at::from_blob(const_cast<int64_t*>(indices.data()), {static_cast<int64_t>(indices.size())},
                                        at::TensorOptions().dtype(at::kLong))
                              .to(data_.device());
  return {.data = at::index_select(data_, 0, rows), .target = at::index_select(target_, 0, rows.to(target_.device()))};
}

}  // namespace ddp

#include <ATen/ops/empty.h>
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

ByteText::ByteText(std::string text, int64_t length) : text_(std::move(text)), length_(length) {
  if (length < 1) {
    throw std::invalid_argument("ByteText: expected sequences of at least 1 byte, got " + std::to_string(length));
  }
  if (size() < 1) {
    throw std::invalid_argument("ByteText: a text of " + std::to_string(text_.size()) +
                                " bytes is too short for a sequence of " + std::to_string(length) +
                                " bytes and the byte after it");
  }
}

Batch ByteText::get_batch(std::span<const int64_t> indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  Batch batch{.data = at::empty({count, length_}, at::kLong), .target = at::empty({count, length_}, at::kLong)};
  auto* data = batch.data.mutable_data_ptr<int64_t>();
  auto* target = batch.target.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    if (index < 0 || index >= size()) {
      throw std::out_of_range("ByteText: index " + std::to_string(index) + " is out of range for " +
                              std::to_string(size()) + " sequences");
    }
    const char* from = text_.data() + index * length_;
    for (int64_t i = 0; i < length_; ++i) {
      *data++ = static_cast<unsigned char>(from[i]);
      *target++ = static_cast<unsigned char>(from[i + 1]);
    }
  }
  return batch;
}

}  // namespace ddp

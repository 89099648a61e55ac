#include <ATen/ops/empty.h>

#include <sstream>
#include <stdexcept>
#include <utility>

#include "ddprun/data/image_datasets.h"

namespace ddp {
namespace {

void require_pictures(const at::Tensor& images, const at::Tensor& labels, const std::string& name) {
  const auto is_plain = [](const at::Tensor& tensor) { return tensor.device().is_cpu() && tensor.is_contiguous(); };
  if (images.dim() == 4 && images.scalar_type() == at::kByte && is_plain(images) && images.size(1) >= 1 &&
      images.size(1) <= 3 && labels.dim() == 1 && labels.scalar_type() == at::kLong && is_plain(labels) &&
      labels.size(0) == images.size(0)) {
    return;
  }
  std::ostringstream text;
  text << name
       << ": expected images of uint8 (N, 1 to 3, H, W) and labels of int64 (N), contiguous on the CPU, got images "
       << images.scalar_type() << " " << images.sizes() << " and labels " << labels.scalar_type() << " "
       << labels.sizes();
  throw std::invalid_argument(text.str());
}

// Those of channels that there are not may have any value.
NormalizationTable table_for(Normalization normalization, int64_t channels) {
  for (auto channel = static_cast<size_t>(channels); channel < normalization.mean.size(); ++channel) {
    normalization.mean[channel] = 0;
    normalization.stddev[channel] = 1;
  }
  return normalization_table(normalization);
}

}  // namespace

ByteImages::ByteImages(at::Tensor images, at::Tensor labels, const Normalization& normalization,
                       std::vector<std::string> class_names, std::string name)
    : images_(std::move(images)),
      labels_(std::move(labels)),
      class_names_(std::move(class_names)),
      name_(std::move(name)) {
  require_pictures(images_, labels_, name_);
  table_ = table_for(normalization, channels());
}

void ByteImages::check_index(int64_t index) const {
  if (index >= 0 && index < size()) return;
  throw std::out_of_range(name_ + ": index " + std::to_string(index) + " is out of range for " +
                          std::to_string(size()) + " images");
}

Batch ByteImages::get_batch(std::span<const int64_t> indices) const {
  return gather(indices);
}

Batch ByteImages::get_batch(std::span<const size_t> indices) const {
  return gather(indices);
}

template <typename Index>
Batch ByteImages::gather(std::span<const Index> indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  Batch batch{.data = at::empty({count, channels(), height(), width()}, at::kFloat),
              .target = at::empty({count}, at::kLong)};
  const int64_t plane = height() * width();
  const uint8_t* images = images_.const_data_ptr<uint8_t>();
  const int64_t* labels = labels_.const_data_ptr<int64_t>();
  float* data = batch.data.mutable_data_ptr<float>();
  int64_t* target = batch.target.mutable_data_ptr<int64_t>();
  for (const Index given : indices) {
    // A size_t beyond int64 comes out negative.
    const auto index = static_cast<int64_t>(given);
    check_index(index);
    const uint8_t* image = images + index * channels() * plane;
    for (int64_t channel = 0; channel < channels(); ++channel) {
      const auto& values = table_[static_cast<size_t>(channel)];
      for (int64_t i = 0; i < plane; ++i) data[i] = values[image[i]];
      image += plane;
      data += plane;
    }
    *target++ = labels[index];
  }
  return batch;
}

}  // namespace ddp

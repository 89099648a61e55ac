#include "data/cifar10.h"

#include <ATen/ops/empty.h>

#include <stdexcept>

namespace ddp {

Cifar10::Cifar10(const std::filesystem::path& dir, Split split, const Normalization& normalization)
    : table_(normalization_table(normalization)) {
  const std::vector<std::filesystem::path> files = cifar10_files(dir, split);
  class_names_ = read_cifar10_class_names(dir);
  std::vector<int64_t> counts;
  int64_t total = 0;
  for (const auto& file : files) {
    counts.push_back(cifar10_image_count(file));
    total += counts.back();
  }
  images_ = at::empty({total, kCifar10Channels, kCifar10Side, kCifar10Side}, at::kByte);
  labels_ = at::empty({total}, at::kLong);
  uint8_t* images = images_.mutable_data_ptr<uint8_t>();
  int64_t* labels = labels_.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < files.size(); ++i) {
    read_cifar10_file(files[i], {images, static_cast<size_t>(counts[i] * kCifar10ImageBytes)},
                      {labels, static_cast<size_t>(counts[i])});
    images += counts[i] * kCifar10ImageBytes;
    labels += counts[i];
  }
}

Batch Cifar10::get_batch(std::span<const int64_t> indices) const {
  return gather(indices);
}

Batch Cifar10::get_batch(std::span<const size_t> indices) const {
  return gather(indices);
}

template <typename Index>
Batch Cifar10::gather(std::span<const Index> indices) const {
  constexpr int64_t kPlane = kCifar10Side * kCifar10Side;
  const auto count = static_cast<int64_t>(indices.size());
  Batch batch{.data = at::empty({count, kCifar10Channels, kCifar10Side, kCifar10Side}, at::kFloat),
              .target = at::empty({count}, at::kLong)};
  const uint8_t* images = images_.const_data_ptr<uint8_t>();
  const int64_t* labels = labels_.const_data_ptr<int64_t>();
  float* data = batch.data.mutable_data_ptr<float>();
  int64_t* target = batch.target.mutable_data_ptr<int64_t>();
  for (const Index given : indices) {
    // A size_t beyond int64 comes out negative.
    const auto index = static_cast<int64_t>(given);
    if (index < 0 || index >= size()) {
      throw std::out_of_range("Cifar10: index " + std::to_string(given) + " is out of range for " +
                              std::to_string(size()) + " images");
    }
    const uint8_t* image = images + index * kCifar10ImageBytes;
    for (const auto& channel : table_) {
      for (int64_t i = 0; i < kPlane; ++i) data[i] = channel[image[i]];
      image += kPlane;
      data += kPlane;
    }
    *target++ = labels[index];
  }
  return batch;
}

}  // namespace ddp

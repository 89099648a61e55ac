#include "data/augmented_cifar10.h"

#include <ATen/ops/empty.h>

#include <stdexcept>
#include <string>

namespace ddp {

AugmentedCifar10::AugmentedCifar10(const Cifar10& images, const CropFlipOptions& options)
    : images_(&images), options_(options) {
  draw_crop_flip(options, 0, 0);  // checks them
}

Batch AugmentedCifar10::get_batch(std::span<const int64_t> indices, int64_t epoch) const {
  constexpr auto kImage = static_cast<size_t>(kCifar10ImageBytes);
  const auto count = static_cast<int64_t>(indices.size());
  Batch batch{.data = at::empty({count, kCifar10Channels, kCifar10Side, kCifar10Side}, at::kFloat),
              .target = at::empty({count}, at::kLong)};
  const uint8_t* images = images_->images().const_data_ptr<uint8_t>();
  const int64_t* labels = images_->labels().const_data_ptr<int64_t>();
  float* data = batch.data.mutable_data_ptr<float>();
  int64_t* target = batch.target.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    if (index < 0 || index >= size()) {
      throw std::out_of_range("Cifar10: index " + std::to_string(index) + " is out of range for " +
                              std::to_string(size()) + " images");
    }
    crop_flip_normalize({images + static_cast<size_t>(index) * kImage, kImage}, kCifar10Channels, kCifar10Side,
                        kCifar10Side, draw_crop_flip(options_, epoch, index), images_->table(), {data, kImage});
    data += kImage;
    *target++ = labels[index];
  }
  return batch;
}

}  // namespace ddp

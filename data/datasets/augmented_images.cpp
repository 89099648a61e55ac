#include <ATen/ops/empty.h>

#include "ddprun/data/image_datasets.h"

namespace ddp {

AugmentedImages::AugmentedImages(const ByteImages& images, const CropFlipOptions& options)
    : images_(&images), options_(options) {
  draw_crop_flip(options, 0, 0);  // checks the options
}

Batch AugmentedImages::get_batch(std::span<const int64_t> indices, int64_t epoch) const {
  const int64_t channels = images_->channels();
  const int64_t height = images_->height();
  const int64_t width = images_->width();
  const auto values = static_cast<size_t>(channels * height * width);
  const auto count = static_cast<int64_t>(indices.size());
  Batch batch{.data = at::empty({count, channels, height, width}, at::kFloat), .target = at::empty({count}, at::kLong)};
  const uint8_t* images = images_->images().const_data_ptr<uint8_t>();
  const int64_t* labels = images_->labels().const_data_ptr<int64_t>();
  float* data = batch.data.mutable_data_ptr<float>();
  int64_t* target = batch.target.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    images_->check_index(index);
    crop_flip_normalize({images + static_cast<size_t>(index) * values, values}, channels, height, width,
                        draw_crop_flip(options_, epoch, index), images_->table(), {data, values});
    data += values;
    *target++ = labels[index];
  }
  return batch;
}

}  // namespace ddp

#include <ATen/ops/empty.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include <ddprun/data/image.h>

#include "ddprun/data/image_datasets.h"

namespace ddp {

SyntheticImages::SyntheticImages(const SyntheticImagesOptions& options) : options_(options) {
  for (const int64_t value : {options.size, options.channels, options.height, options.width, options.classes}) {
    if (value >= 1) continue;
    throw std::invalid_argument("SyntheticImages: expected sizes and a number of classes of 1 or more, got " +
                                std::to_string(value));
  }
}

Batch SyntheticImages::get_batch(std::span<const int64_t> indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  Batch batch{.data = at::empty({count, options_.channels, options_.height, options_.width}, at::kFloat),
              .target = at::empty({count}, at::kLong)};
  float* data = batch.data.mutable_data_ptr<float>();
  int64_t* target = batch.target.mutable_data_ptr<int64_t>();
  const int64_t values = options_.channels * options_.height * options_.width;
  const double edge = std::sqrt(3.0);  // a uniform distribution from -√3 to √3 has variance 1
  for (const int64_t index : indices) {
    if (index < 0 || index >= size()) {
      throw std::out_of_range("SyntheticImages: index " + std::to_string(index) + " is out of range for " +
                              std::to_string(size()) + " images");
    }
    SampleRandom random(options_.seed, /*epoch=*/0, options_.first + index);
    *target = random.below(static_cast<uint64_t>(options_.classes));
    SampleRandom of_class(options_.seed, /*epoch=*/1, *target++);
    const double mean = of_class.uniform(-1, 1);
    for (int64_t i = 0; i < values; ++i) *data++ = static_cast<float>(mean + random.uniform(-edge, edge));
  }
  return batch;
}

}  // namespace ddp

#include "data/image_folder.h"

#include <ATen/ops/empty.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "data/error.h"
#include "data/image_transform.h"
#include "data/resize.h"
#include "data/sample_random.h"

namespace ddp {

ImageFolder::ImageFolder(ImageListing listing, const ImageFolderOptions& options)
    : listing_(std::move(listing)),
      options_(options),
      table_(normalization_table(options.normalization)),
      skipped_(std::make_shared<std::atomic<int64_t>>(0)) {
  if (options_.size < 1 || (!options_.augment && options_.shorter_side < options_.size)) {
    throw std::invalid_argument("ImageFolder: cannot crop " + std::to_string(options_.size) +
                                " pixels out of a side of " + std::to_string(options_.shorter_side));
  }
  check_color_jitter(options_.color_jitter);
}

Batch ImageFolder::get_batch(std::span<const int64_t> indices, int64_t epoch) const {
  const auto values = static_cast<size_t>(3 * options_.size * options_.size);
  const auto count = static_cast<int64_t>(indices.size());
  Batch batch{.data = at::empty({count, 3, options_.size, options_.size}, at::kFloat),
              .target = at::empty({count}, at::kLong)};
  float* data = batch.data.mutable_data_ptr<float>();
  int64_t* target = batch.target.mutable_data_ptr<int64_t>();
  int64_t done = 0;
  for (const int64_t index : indices) {
    if (index < 0 || index >= size()) {
      throw std::out_of_range("ImageFolder: index " + std::to_string(index) + " is out of range for " +
                              std::to_string(size()) + " pictures");
    }
    try {
      read(index, epoch, {data + static_cast<size_t>(done) * values, values});
    } catch (const DataError&) {
      if (!options_.skip_unreadable) throw;
      ++*skipped_;
      continue;
    }
    target[done++] = listing_.labels[static_cast<size_t>(index)];
  }
  if (done < count) batch = {.data = batch.data.narrow(0, 0, done), .target = batch.target.narrow(0, 0, done)};
  return batch;
}

void ImageFolder::read(int64_t index, int64_t epoch, std::span<float> out) const {
  const Image image = read_image(listing_.files[static_cast<size_t>(index)], options_.decode);
  if (!options_.augment) {
    normalize_image(resize_and_crop_centre(image, options_.shorter_side, options_.size), false, table_, out);
    return;
  }
  SampleRandom random(options_.seed, epoch, index);
  const Box box = draw_resized_crop(image.height, image.width, random);
  Image part = resize(image, box, options_.size, options_.size);
  const bool is_flipped = random.below(2) == 1;
  if (options_.color_jitter.is_active()) color_jitter(part, options_.color_jitter, random);
  normalize_image(part, is_flipped, table_, out);
}

}  // namespace ddp

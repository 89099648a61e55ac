#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

#include <ddprun/data/image.h>

#include "data/datasets/batch_memory.h"
#include "data/formats/limits.h"
#include "ddprun/data/image_datasets.h"

namespace ddp {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 32;

}  // namespace

ImageFolder::ImageFolder(ImageListing listing, const ImageFolderOptions& options)
    : listing_(std::move(listing)),
      options_(options),
      table_(normalization_table(options.normalization)),
      skipped_(std::make_shared<std::atomic<int64_t>>(0)),
      memory_(std::make_shared<const detail::BatchMemory>()) {
  if (options_.size < 1 || (!options_.augment && options_.shorter_side < options_.size)) {
    throw std::invalid_argument("ImageFolder: cannot crop " + std::to_string(options_.size) +
                                " pixels out of a side of " + std::to_string(options_.shorter_side));
  }
  check_color_jitter(options_.color_jitter);
}

void ImageFolder::check_index(int64_t index) const {
  if (index >= 0 && index < size()) return;
  throw std::out_of_range("ImageFolder: index " + std::to_string(index) + " is out of range for " +
                          std::to_string(size()) + " pictures");
}

Batch ImageFolder::get_batch(std::span<const int64_t> indices, int64_t epoch, std::span<const int64_t> share) const {
  const auto values = static_cast<size_t>(3 * options_.size * options_.size);
  const auto count = static_cast<int64_t>(indices.size());
  Batch batch{.data = memory_->empty({count, 3, options_.size, options_.size}, at::kFloat),
              .target = at::empty({count}, at::kLong)};
  float* data = batch.data.mutable_data_ptr<float>();
  int64_t* target = batch.target.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    const int64_t taken = read_or_replace(index, epoch, share, {data, values});
    *target++ = listing_.labels[static_cast<size_t>(taken)];
    data += values;
  }
  return batch;
}

int64_t ImageFolder::read_or_replace(int64_t index, int64_t epoch, std::span<const int64_t> share,
                                     std::span<float> out) const {
  check_index(index);
  try {
    read(index, SampleRandom(options_.seed, epoch, index), out);
    return index;
  } catch (const DataError& error) {
    if (!options_.skip_unreadable) throw;
    ++*skipped_;
    return replace(index, epoch, share, error, out);
  }
}

// Returns another image of the share in place of an unreadable one. The images are tried in order from a pseudorandom
// position, each at most once. That position does not depend on batches, workers and resumes.
int64_t ImageFolder::replace(int64_t index, int64_t epoch, std::span<const int64_t> share, const DataError& error,
                             std::span<float> out) const {
  constexpr uint64_t kPurpose =
      0x7265706C61636564;  // makes the random numbers independent of those of the augmentation
  constexpr size_t kMaxTries = 100;
  SampleRandom random(options_.seed ^ kPurpose, epoch, index);
  const size_t tries = std::min(share.size(), kMaxTries);
  const auto first = share.empty() ? 0 : static_cast<size_t>(random.below(share.size()));
  for (size_t i = 0; i < tries; ++i) {
    const int64_t other = share[(first + i) % share.size()];
    check_index(other);
    if (other == index) continue;
    try {
      // Does not use the random numbers of `other` itself, because that image may be in the same batch.
      read(other, random, out);
      return other;
    } catch (const DataError&) {
      ++*skipped_;
    }
  }
  const std::string problem = std::string(error.what()).substr(error.path().string().size() + 2);
  throw DataError(error.path(), problem + "; none of the " + std::to_string(tries) +
                                    " pictures tried as a replacement can be read either");
}

ResizedPart ImageFolder::part_of(int64_t height, int64_t width, SampleRandom& random) const {
  if (!options_.augment) return centre_part(height, width, options_.shorter_side, options_.size);
  return {.box = draw_resized_crop(height, width, random),
          .height = options_.size,
          .width = options_.size,
          .part = {.height = options_.size, .width = options_.size}};
}

void ImageFolder::read(int64_t index, SampleRandom random, std::span<float> out) const {
  const std::filesystem::path& file = listing_.files[static_cast<size_t>(index)];
  // An exception from scaling also counts as an error of the picture.
  with_data_errors(file, [&] {
    Image part = decode_part(
        read_small_file_bytes(file, kMaxFileBytes), file,
        [&](int64_t height, int64_t width) { return part_of(height, width, random); }, options_.decoding,
        options_.decode);
    const bool is_flipped = options_.augment && random.below(2) == 1;
    if (options_.augment && options_.color_jitter.is_active()) color_jitter(part, options_.color_jitter, random);
    normalize_image(part, is_flipped, table_, out);
  });
}

}  // namespace ddp

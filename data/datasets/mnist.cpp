#include <algorithm>
#include <utility>

#include <ddprun/data/byte_source.h>
#include <ddprun/data/file_formats.h>

#include "data/datasets/tensors_of.h"
#include "ddprun/data/image_datasets.h"

namespace ddp {
namespace {

constexpr uint8_t kMostLabel = 9;

std::filesystem::path find(const std::filesystem::path& dir, const std::string& name) {
  const std::filesystem::path plain = dir / name;
  const std::filesystem::path compressed = dir / (name + ".gz");
  return !std::filesystem::exists(plain) && std::filesystem::exists(compressed) ? compressed : plain;
}

ByteImages read(const std::filesystem::path& dir, Mnist::Split split, const Normalization& normalization) {
  const std::string part = split == Mnist::Split::kTrain ? "train" : "t10k";
  IdxArray images = read_idx(find(dir, part + "-images-idx3-ubyte"), 3);
  const auto labels_file = find(dir, part + "-labels-idx1-ubyte");
  const IdxArray labels = read_idx(labels_file, 1);
  const int64_t count = images.shape[0];
  if (labels.shape[0] != count) {
    throw DataError(labels_file, "expected a label for each of " + std::to_string(count) + " images, got " +
                                     std::to_string(labels.shape[0]));
  }
  const auto wrong = std::ranges::find_if(labels.values, [](uint8_t label) { return label > kMostLabel; });
  if (wrong != labels.values.end()) {
    throw DataError(labels_file, "label " + std::to_string(*wrong) + " of image " +
                                     std::to_string(wrong - labels.values.begin()) + ", expected 0 to 9");
  }
  return {tensor_of(std::move(images.values), {count, 1, images.shape[1], images.shape[2]}),
          tensor_of(std::vector<int64_t>(labels.values.begin(), labels.values.end()), {count}),
          normalization,
          {},
          "Mnist"};
}

}  // namespace

Mnist::Mnist(const std::filesystem::path& dir, Split split, const Normalization& normalization)
    : ByteImages(read(dir, split, normalization)) {}

}  // namespace ddp

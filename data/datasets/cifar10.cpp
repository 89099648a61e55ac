#include <ATen/ops/empty.h>

#include "ddprun/data/image_datasets.h"

namespace ddp {
namespace {

ByteImages read(const std::filesystem::path& dir, Cifar10Split split, const Normalization& normalization) {
  const std::vector<std::filesystem::path> files = cifar10_files(dir, split);
  std::vector<std::string> class_names = read_cifar10_class_names(dir);
  std::vector<int64_t> counts;
  int64_t total = 0;
  for (const auto& file : files) {
    counts.push_back(cifar10_image_count(file));
    total += counts.back();
  }
  const at::Tensor all_images = at::empty({total, kCifar10Channels, kCifar10Side, kCifar10Side}, at::kByte);
  const at::Tensor all_labels = at::empty({total}, at::kLong);
  uint8_t* images = all_images.mutable_data_ptr<uint8_t>();
  int64_t* labels = all_labels.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < files.size(); ++i) {
    read_cifar10_file(files[i], {images, static_cast<size_t>(counts[i] * kCifar10ImageBytes)},
                      {labels, static_cast<size_t>(counts[i])});
    images += counts[i] * kCifar10ImageBytes;
    labels += counts[i];
  }
  return {all_images, all_labels, normalization, std::move(class_names), "Cifar10"};
}

}  // namespace

Cifar10::Cifar10(const std::filesystem::path& dir, Split split, const Normalization& normalization)
    : ByteImages(read(dir, split, normalization)) {}

}  // namespace ddp

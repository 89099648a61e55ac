#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ddprun/data/byte_source.h>
#include <ddprun/data/file_formats.h>

#include "ddprun/data/image_datasets.h"

namespace ddp {
namespace {

/// Returns a tensor of this shape that owns the vector and uses its memory.
template <typename T>
at::Tensor tensor_of(std::vector<T> values, at::IntArrayRef shape) {
  const auto owner = std::make_shared<std::vector<T>>(std::move(values));
  return at::from_blob(
      owner->data(), shape, [owner](void*) {}, at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
}

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

// Entries for channels that do not exist may have any value.
NormalizationTable table_for(Normalization normalization, int64_t channels) {
  for (auto channel = static_cast<size_t>(channels); channel < normalization.mean.size(); ++channel) {
    normalization.mean[channel] = 0;
    normalization.stddev[channel] = 1;
  }
  return normalization_table(normalization);
}

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

ByteImages read(const std::filesystem::path& dir, Cifar100::Split split, const Normalization& normalization,
                Cifar100::Labels labels) {
  constexpr int64_t kSide = 32;
  const bool fine = labels == Cifar100::Labels::kFine;
  Cifar100Content content = read_cifar100_file(dir / (split == Cifar100::Split::kTrain ? "train.bin" : "test.bin"));
  const auto names_file = dir / (fine ? "fine_label_names.txt" : "coarse_label_names.txt");
  std::vector<std::string> names;
  if (std::filesystem::exists(names_file)) {
    names = read_label_names(names_file, fine ? kCifar100FineClasses : kCifar100CoarseClasses);
  }
  const auto count = static_cast<int64_t>(content.fine_labels.size());
  return {tensor_of(std::move(content.images), {count, 3, kSide, kSide}),
          tensor_of(std::move(fine ? content.fine_labels : content.coarse_labels), {count}), normalization,
          std::move(names), "Cifar100"};
}

constexpr uint8_t kMaxLabel = 9;

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
  const auto wrong = std::ranges::find_if(labels.values, [](uint8_t label) { return label > kMaxLabel; });
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
    // A size_t above the range of int64 becomes negative.
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

Cifar10::Cifar10(const std::filesystem::path& dir, Split split, const Normalization& normalization)
    : ByteImages(read(dir, split, normalization)) {}

Cifar100::Cifar100(const std::filesystem::path& dir, Split split, const Normalization& normalization, Labels labels)
    : ByteImages(read(dir, split, normalization, labels)) {}

Mnist::Mnist(const std::filesystem::path& dir, Split split, const Normalization& normalization)
    : ByteImages(read(dir, split, normalization)) {}

}  // namespace ddp

#include <utility>

#include <ddprun/data/file_formats.h>

#include "data/datasets/tensors_of.h"
#include "ddprun/data/image_datasets.h"

namespace ddp {
namespace {

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

}  // namespace

Cifar100::Cifar100(const std::filesystem::path& dir, Split split, const Normalization& normalization, Labels labels)
    : ByteImages(read(dir, split, normalization, labels)) {}

}  // namespace ddp

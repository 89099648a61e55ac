// CIFAR-100's binary version: records of a coarse label, a fine label and 3 × 32 × 32 pixels. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ddp {

inline constexpr int64_t kCifar100CoarseClasses = 20;
inline constexpr int64_t kCifar100FineClasses = 100;

struct Cifar100Content {
  std::vector<uint8_t> images{};         ///< count × 3 × 32 × 32
  std::vector<int64_t> coarse_labels{};  ///< 0 … 19
  std::vector<int64_t> fine_labels{};    ///< 0 … 99
};

/// Reads train.bin or test.bin. Throws DataError, one line that names the file, for anything but whole records with
/// labels in range.
Cifar100Content read_cifar100_file(const std::filesystem::path& file);

/// The names in fine_label_names.txt or coarse_label_names.txt, one a line: exactly `count`, without control
/// characters. Throws DataError.
std::vector<std::string> read_label_names(const std::filesystem::path& file, int64_t count);

}  // namespace ddp

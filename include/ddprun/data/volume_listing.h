// Pairs of NIfTI files: a volume and its labels. No LibTorch.
#pragma once

#include <filesystem>
#include <vector>

namespace ddp {

struct VolumePair {
  std::filesystem::path image{};
  std::filesystem::path label{};
};

/// Each .nii or .nii.gz file in `images` with the file of the same name in `labels`, sorted by name. An image's name
/// may end in _0000 before the extension, as nnU-Net has it. Throws DataError when a folder cannot be read or holds no
/// volume, and naming an image without labels.
std::vector<VolumePair> list_volume_pairs(const std::filesystem::path& images, const std::filesystem::path& labels);

}  // namespace ddp

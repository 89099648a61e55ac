// NIfTI volumes and their labels, read when they are asked for: for segmentation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ddprun/data/batch.h>
#include <ddprun/data/listings.h>

namespace ddp {

/// Settings of Volumes, all optional.
struct VolumesOptions {
  std::array<int64_t, 3>
      size{};             ///< depth, height and width of what a network gets; {0, 0, 0}: whole volumes, of one shape
  bool augment = false;   ///< training: a random part, axes mirrored half of the time. Else: the centre
  bool normalize = true;  ///< each volume to mean 0 and standard deviation 1 over its voxels
  int64_t classes = 0;    ///< labels are 0 … classes-1; 0: not checked
  uint64_t seed = 0;      ///< of the augmentation
};

/// The volumes of a list of pairs, for a Loader. Safe from several threads.
///
///     ddp::Volumes train(ddp::list_volume_pairs(root / "imagesTr", root / "labelsTr"), {.size = {64, 64, 64}, .augment
///     = true});
class Volumes {
 public:
  /// Throws std::invalid_argument for a size that is neither positive nor zero on all axes.
  explicit Volumes(std::vector<VolumePair> pairs, const VolumesOptions& options = {});

  /// Number of volumes.
  int64_t size() const { return static_cast<int64_t>(pairs_.size()); }
  /// The files that it reads.
  const std::vector<VolumePair>& pairs() const { return pairs_; }

  /// These volumes: data float32 (B, 1, D, H, W), target int64 (B, D, H, W), zeros where a volume is smaller than
  /// `size`. Depends on seed, epoch and index alone. Throws std::out_of_range, and DataError naming the file that
  /// cannot be read, differs from its image's shape or (without `size`) from the batch's, or holds labels that are no
  /// class.
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch) const;

 private:
  std::vector<VolumePair> pairs_;
  VolumesOptions options_;
};

}  // namespace ddp

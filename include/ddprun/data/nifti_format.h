// NIfTI-1 volumes (.nii, .nii.gz), as neuroimaging uses them (https://nifti.nimh.nih.gov/nifti-1). No LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace ddp {

/// One volume. `values` has x fastest, so it is the tensor (depth, height, width) in row-major order.
struct NiftiVolume {
  int64_t depth = 0;                  ///< z, dim[3]
  int64_t height = 0;                 ///< y, dim[2]
  int64_t width = 0;                  ///< x, dim[1]
  std::array<float, 3> spacing_mm{};  ///< of neighbours along depth, height and width (pixdim; its unit is taken as mm)
  std::vector<float> values{};        ///< scaled by scl_slope and scl_inter where the header asks for it
};

/// Reads a single-file NIfTI-1 volume of either byte order, with integers of 8 to 64 bits or floats; scaling is done in
/// double precision and rounded to float once, as nibabel's get_fdata(dtype=float32) gives it for whole numbers. Throws
/// DataError, one line that names the file, for other files, more than three dimensions longer than 1, sizes that the
/// file cannot hold, and other data types.
NiftiVolume read_nifti(const std::filesystem::path& path);

}  // namespace ddp

// Reads a picture file whose bytes are in memory, without converting its samples.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include <ddprun/data/image.h>

namespace ddp {

/// Returns the samples. `path` is used only in messages. Throws DataError like load_raster().
at::Tensor raster_of_bytes(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                           const DecodeOptions& options);

}  // namespace ddp

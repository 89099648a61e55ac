// Reads a .npy file that is in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <span>

namespace ddp {

/// Returns the array in a file's bytes, in memory of its own. `path` is for messages. Throws DataError as load_npy().
at::Tensor npy_of_bytes(std::span<const uint8_t> bytes, const std::filesystem::path& path);

}  // namespace ddp

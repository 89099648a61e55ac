// Reads a .npy file whose bytes are in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <span>

namespace ddp {

/// Returns the array in a newly allocated tensor. `path` is used only in messages. Throws DataError like load_npy().
at::Tensor npy_of_bytes(std::span<const uint8_t> bytes, const std::filesystem::path& path);

}  // namespace ddp

// The IDX format of MNIST and Fashion-MNIST (http://yann.lecun.com/exdb/mnist, "file formats"). No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace ddp {

/// An array of bytes in row-major order.
struct IdxArray {
  std::vector<int64_t> shape{};
  std::vector<uint8_t> values{};
};

/// Reads an IDX file of unsigned bytes with `dimensions` dimensions, plain or gzip-compressed. Throws DataError, one
/// line that names the file, when it is another kind of file, is cut short or has more in it than its header says.
IdxArray read_idx(const std::filesystem::path& path, int dimensions);

}  // namespace ddp

// The header of a .npy file: what follows it, how large, in which order. Reference: numpy.lib.format. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ddp {

/// What a header says.
struct NpyHeader {
  char kind = 'f';             ///< NumPy's: b (bool), i, u, f, c (complex)
  int64_t item_bytes = 4;      ///< of an element
  bool is_big_endian = false;  ///< elements have the other byte order than this machine
  bool is_fortran = false;     ///< the first dimension is the fastest
  std::vector<int64_t> shape{};

  // Set by read_npy_header():
  uint64_t count = 1;       ///< of elements; with item_bytes it fits in int64
  uint64_t data_begin = 0;  ///< bytes before the elements
};

/// Fills all of a span with the next bytes, or throws DataError.
using ReadBytes = std::function<void(std::span<uint8_t>)>;

/// Reads a header of version 1, 2 or 3. Throws DataError, one line that names the file, for another kind of file, a
/// header that NumPy does not write, structures, texts and pickled objects.
NpyHeader read_npy_header(const ReadBytes& read, const std::filesystem::path& path);

/// The header that numpy.save writes, byte by byte.
std::string npy_header(const NpyHeader& header);

}  // namespace ddp

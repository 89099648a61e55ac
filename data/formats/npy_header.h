// The header of a .npy file: type, shape and order of the elements. Reference: numpy.lib.format. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ddp {

/// The contents of a header.
struct NpyHeader {
  char kind = 'f';             ///< the kind in NumPy: b (bool), i, u, f, c (complex)
  int64_t item_bytes = 4;      ///< bytes per element
  bool is_big_endian = false;  ///< the byte order of the elements differs from that of this machine
  bool is_fortran = false;     ///< the first dimension varies fastest
  std::vector<int64_t> shape{};

  // The following members are set by read_npy_header().
  uint64_t count = 1;       ///< the number of elements; its product with item_bytes fits in int64
  uint64_t data_begin = 0;  ///< the number of bytes before the elements
};

/// Fills the whole span with the next bytes, or throws DataError.
using ReadBytes = std::function<void(std::span<uint8_t>)>;

/// Reads a header of version 1, 2 or 3. Throws DataError (one line that names the file) for another kind of file, for
/// headers that NumPy does not write, and for structures, strings and pickled objects.
NpyHeader read_npy_header(const ReadBytes& read, const std::filesystem::path& path);

/// Returns the header that numpy.save writes, byte for byte.
std::string npy_header(const NpyHeader& header);

}  // namespace ddp

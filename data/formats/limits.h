// Limits for the memory and work that a file may need. They depend on the size of the file, not on the numbers in its
// header. Does not use LibTorch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/data/byte_source.h>

namespace ddp {

/// The maximum number of bytes that deflate can produce from one byte (https://zlib.net/zlib_tech.html).
inline constexpr int64_t kMaxInflation = 1032;

/// Whether a picture of `bytes` bytes is read twice, if its format needs all of the memory from the first row on. The
/// first pass only checks that the file is complete, because the file is small compared with the picture. Photographs
/// are read only once.
inline bool needs_check_pass(int64_t bytes, int64_t file_bytes) {
  return bytes > std::max(int64_t{32} << 20, 32 * file_bytes);
}

/// Throws DataError if a file of `file_bytes` would be decompressed to more than 512 MiB and to more than 128 times its
/// size: such a file contains hardly any information and takes seconds to read. `times` is how many times it is
/// decompressed, or how much longer that takes than usual; both limits are divided by it.
void check_unpacked_size(const std::filesystem::path& path, int64_t unpacked_bytes, int64_t file_bytes,
                         int64_t times = 1);

/// Throws DataError if a reader needs more than 56 MiB and more than 56 times the size of the file, in addition to the
/// picture. `what` describes the memory, such as "tiles of 16384x16384 pixels".
void check_working_memory(const std::filesystem::path& path, int64_t bytes, int64_t file_bytes,
                          const std::string& what);

/// The maximum work for the scans of a JPEG file of `file_bytes`. The unit is a scan with Huffman codes over one block
/// of 8x8 samples that changes nothing, about 4 ns on a busy machine. A file of 1 MB takes at most 1.6 s.
constexpr int64_t max_jpeg_work(int64_t file_bytes) {
  constexpr int64_t kAlways = 280'000'000;
  constexpr int64_t kPerByte = 110;
  return kAlways + kPerByte * file_bytes;
}

/// The work per block of a scan that refines coefficients, and the work per coefficient of arithmetic coding.
inline constexpr int64_t kRefinementWork = 11;
inline constexpr int64_t kCoefficientWork = 5;

/// Returns the result of `read`. Every exception becomes a DataError with the name of the file, so that programs which
/// skip unreadable files also skip this one.
template <typename Read>
auto with_data_errors(const std::filesystem::path& path, const Read& read) -> decltype(read()) {
  try {
    return read();
  } catch (const DataError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw DataError(path, "there is not enough memory to read it");
  } catch (const std::exception& error) {
    throw DataError(path, std::string("cannot be read: ") + error.what());
  }
}

/// Appends `bytes` to a vector for which reserve() was called, and returns a pointer to the new bytes. The system
/// allocates physical memory only when it is written, so a truncated file uses memory only for the rows that it
/// contains.
inline uint8_t* add_row(std::vector<uint8_t>& pixels, size_t bytes) {
  pixels.resize(pixels.size() + bytes);
  return pixels.data() + pixels.size() - bytes;
}

}  // namespace ddp

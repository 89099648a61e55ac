// How much memory and work a file may ask for: bounds that follow from its size, not from what it claims. No LibTorch.
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

/// What deflate can make of one byte at most (https://zlib.net/zlib_tech.html).
inline constexpr int64_t kMostInflation = 1032;

/// Whether a picture of `bytes` is read twice where it needs all of its memory from the first row on: the first time
/// only to see that all of it is there, since so little of it is in the file. Photographs stay below that.
inline bool is_checked_first(int64_t bytes, int64_t file_bytes) {
  return bytes > std::max(int64_t{32} << 20, 32 * file_bytes);
}

/// Throws DataError when a file of `file_bytes` is to be unpacked to more than 512 MiB and 128 times its own size: such
/// a file holds next to nothing, and takes seconds. `times` is how often it is unpacked, or how much longer that takes
/// than usual: of both numbers so much less is allowed.
void check_unpacked_size(const std::filesystem::path& path, int64_t unpacked_bytes, int64_t file_bytes,
                         int64_t times = 1);

/// Throws DataError when a reader needs more than 56 MiB, and more than 56 times the file's size, beside the picture.
/// `what` is what takes the memory: "tiles of 16384x16384 pixels".
void check_working_memory(const std::filesystem::path& path, int64_t bytes, int64_t file_bytes,
                          const std::string& what);

/// How much work the scans of a JPEG file of `file_bytes` may be. The unit is a scan with Huffman codes over one block
/// of 8x8 samples which changes nothing there, some 4 ns on a busy machine. A file of 1 MB takes at most 1.6 s.
constexpr int64_t most_jpeg_work(int64_t file_bytes) {
  constexpr int64_t kAlways = 280'000'000;
  constexpr int64_t kPerByte = 110;
  return kAlways + kPerByte * file_bytes;
}

/// The work of a scan that refines coefficients over a block, and of arithmetic coding for each coefficient.
inline constexpr int64_t kRefinementWork = 11;
inline constexpr int64_t kCoefficientWork = 5;

/// What `read` returns. Whatever it throws is a DataError that names the file, so that a program that passes over
/// unreadable files passes over this one as well.
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

/// Adds `bytes` to pixels that were given room with reserve(), and returns their place: the system hands out memory
/// when it is written to, so a file that is cut short takes what its rows take.
inline uint8_t* add_row(std::vector<uint8_t>& pixels, size_t bytes) {
  pixels.resize(pixels.size() + bytes);
  return pixels.data() + pixels.size() - bytes;
}

}  // namespace ddp

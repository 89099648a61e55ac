#include <algorithm>
#include <array>
#include <string>

#include <ddprun/data/byte_source.h>

#include "data/formats/limits.h"
#include "ddprun/data/file_formats.h"

namespace ddp {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
/// Much larger than any dataset of this format, and small enough for exact arithmetic.
constexpr uint64_t kMaxBytes = uint64_t{1} << 40;

uint32_t read_big_endian(ByteSource& source) {
  std::array<uint8_t, 4> bytes{};
  source.read(bytes);
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

IdxArray read_array(const std::filesystem::path& path, int dimensions) {
  ByteSource source(path);
  const uint32_t magic = read_big_endian(source);
  if (magic >> 16 != 0 || (magic >> 8 & 0xFF) != kUnsignedByte) {
    throw DataError(path, "expected an IDX file of unsigned bytes (0x00 0x00 0x08), got other bytes at its beginning");
  }
  if ((magic & 0xFF) != static_cast<uint32_t>(dimensions)) {
    throw DataError(path, "expected an IDX file of " + std::to_string(dimensions) + " dimensions, got " +
                              std::to_string(magic & 0xFF) + ": images and labels may be mixed up");
  }
  IdxArray array;
  uint64_t count = 1;
  for (int i = 0; i < dimensions; ++i) {
    const uint32_t size = read_big_endian(source);
    array.shape.push_back(size);
    count *= size;
    if (count > kMaxBytes) throw DataError(path, "its header names more than 2^40 values: it is damaged");
  }
  source.require(count);
  constexpr uint64_t kAtOnce = 1 << 20;
  array.values.reserve(static_cast<size_t>(count));  // physical memory is used only as the values arrive
  while (array.values.size() < count) {
    const auto piece = static_cast<size_t>(std::min(count - array.values.size(), kAtOnce));
    source.read({add_row(array.values, piece), piece});
  }
  source.require_end();
  return array;
}

}  // namespace

IdxArray read_idx(const std::filesystem::path& path, int dimensions) {
  return with_data_errors(path, [&] { return read_array(path, dimensions); });
}

}  // namespace ddp

#include "base/crc32c.h"

#include <array>
#include <cstring>

#include "base/crc_tables.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace ddp {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;
constexpr CrcTables kTables(kPolynomial);

// A linear map of 32-bit vectors over GF(2), stored as the image of each bit.
using Matrix = std::array<uint32_t, 32>;

constexpr uint32_t apply(const Matrix& matrix, uint32_t vector) {
  uint32_t result = 0;
  for (size_t bit = 0; vector != 0; ++bit, vector >>= 1) {
    if ((vector & 1) != 0) result ^= matrix[bit];
  }
  return result;
}

constexpr Matrix squared(const Matrix& matrix) {
  Matrix result{};
  for (size_t bit = 0; bit < result.size(); ++bit) result[bit] = apply(matrix, matrix[bit]);
  return result;
}

// Entry i is the effect of 2^i zero bytes on the CRC register.
constexpr std::array<Matrix, 64> zero_byte_powers() {
  Matrix one_bit{};
  one_bit[0] = kPolynomial;
  for (size_t bit = 1; bit < 32; ++bit) one_bit[bit] = uint32_t{1} << (bit - 1);
  std::array<Matrix, 64> powers{};
  powers[0] = squared(squared(squared(one_bit)));
  for (size_t i = 1; i < powers.size(); ++i) powers[i] = squared(powers[i - 1]);
  return powers;
}

constexpr auto kZeroBytes = zero_byte_powers();

uint32_t append_zero_bytes(uint32_t crc, uint64_t count) {
  for (size_t i = 0; count != 0; ++i, count >>= 1) {
    if ((count & 1) != 0) crc = apply(kZeroBytes[i], crc);
  }
  return crc;
}

#if defined(__x86_64__)
// Three independent streams hide the latency of the CRC instruction (three cycles). Joining them costs as much as
// checksumming a few hundred bytes, so the streams must be long, but short enough for the L1 cache.
constexpr size_t kStream = 8192;

// The map append_zero_bytes(_, kStream) as a lookup table.
using ShiftTable = std::array<std::array<uint32_t, 256>, 4>;

ShiftTable make_shift_table() {
  ShiftTable table{};
  for (size_t position = 0; position < 4; ++position) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      table[position][byte] = append_zero_bytes(byte << (8 * position), kStream);
    }
  }
  return table;
}

uint32_t shift(const ShiftTable& table, uint32_t crc) {
  return table[0][crc & 255] ^ table[1][(crc >> 8) & 255] ^ table[2][(crc >> 16) & 255] ^ table[3][crc >> 24];
}

uint64_t word_at(const unsigned char* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

__attribute__((target("sse4.2"))) uint32_t crc32c_instruction(const void* data, size_t size, uint32_t crc) {
  static const ShiftTable kShift = make_shift_table();
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint64_t first = static_cast<uint32_t>(~crc);
  for (; size >= 3 * kStream; size -= 3 * kStream, bytes += 3 * kStream) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kStream; i += 8) {
      first = _mm_crc32_u64(first, word_at(bytes + i));
      second = _mm_crc32_u64(second, word_at(bytes + kStream + i));
      third = _mm_crc32_u64(third, word_at(bytes + 2 * kStream + i));
    }
    first = shift(kShift, static_cast<uint32_t>(first)) ^ second;
    first = shift(kShift, static_cast<uint32_t>(first)) ^ third;
  }
  for (; size >= 8; size -= 8, bytes += 8) first = _mm_crc32_u64(first, word_at(bytes));
  auto result = static_cast<uint32_t>(first);
  for (; size > 0; --size, ++bytes) result = _mm_crc32_u8(result, *bytes);
  return ~result;
}
#endif

}  // namespace

uint32_t crc32c(const void* data, size_t size, uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return crc32c_instruction(data, size, crc);
#endif
  return crc32c_portable(data, size, crc);
}

uint32_t crc32c_portable(const void* data, size_t size, uint32_t crc) {
  return kTables.update(crc, data, size);
}

uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_size) {
  return append_zero_bytes(first, second_size) ^ second;
}

}  // namespace ddp

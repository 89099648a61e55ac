#include "checkpoint/pt/crc32.h"

#include <array>

#include "base/crc_tables.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ddp::pt {
namespace {

constexpr CrcTables kTables(0xedb88320);

#if defined(__x86_64__)
// Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ" (2009): 16 bytes are folded into the
// bytes that follow them, by a multiplication with x^n modulo the polynomial. When all bytes are folded into the last
// 16, these have the checksum of the whole.
constexpr size_t kLane = sizeof(__m128i);
constexpr size_t kStep = 4 * kLane;

__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(__m128i value, __m128i powers, __m128i next) {
  const auto low = _mm_clmulepi64_si128(value, powers, 0x00);
  const auto high = _mm_clmulepi64_si128(value, powers, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

__attribute__((target("pclmul,sse4.1"))) inline __m128i load(const unsigned char* bytes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}

// At least kStep bytes.
__attribute__((target("pclmul,sse4.1"))) uint32_t crc32_folded(const unsigned char* bytes, size_t size, uint32_t crc) {
  const auto over_64_bytes = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
  const auto over_16_bytes = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
  auto first = _mm_xor_si128(load(bytes), _mm_cvtsi32_si128(static_cast<int>(~crc)));
  auto second = load(bytes + kLane);
  auto third = load(bytes + 2 * kLane);
  auto last = load(bytes + 3 * kLane);
  for (bytes += kStep, size -= kStep; size >= kStep; bytes += kStep, size -= kStep) {
    first = fold(first, over_64_bytes, load(bytes));
    second = fold(second, over_64_bytes, load(bytes + kLane));
    third = fold(third, over_64_bytes, load(bytes + 2 * kLane));
    last = fold(last, over_64_bytes, load(bytes + 3 * kLane));
  }
  second = fold(first, over_16_bytes, second);
  third = fold(second, over_16_bytes, third);
  last = fold(third, over_16_bytes, last);
  for (; size >= kLane; bytes += kLane, size -= kLane) last = fold(last, over_16_bytes, load(bytes));
  // The start value is in it already, so the tables begin with a register of zeros.
  std::array<unsigned char, kLane> folded{};
  _mm_storeu_si128(reinterpret_cast<__m128i*>(folded.data()), last);
  return kTables.update(kTables.update(~uint32_t{0}, folded.data(), folded.size()), bytes, size);
}
#endif

}  // namespace

uint32_t crc32(const void* data, size_t size, uint32_t crc) {
#if defined(__x86_64__)
  if (size >= kStep && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
    return crc32_folded(static_cast<const unsigned char*>(data), size, crc);
  }
#endif
  return crc32_portable(data, size, crc);
}

uint32_t crc32_portable(const void* data, size_t size, uint32_t crc) {
  return kTables.update(crc, data, size);
}

}  // namespace ddp::pt

// Made-up IDX and NIfTI files.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace ddp::test {

inline std::string idx(const std::vector<uint32_t>& shape, const std::string& values) {
  std::string content("\0\0\x08", 3);
  content.push_back(static_cast<char>(shape.size()));
  for (const uint32_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) content.push_back(static_cast<char>(size >> shift));
  }
  return content + values;
}

/// Writes `number` at `place`, with its bytes in the other order if `swap`.
template <typename Number>
void put_number(std::string& content, size_t place, Number number, bool swap) {
  char raw[sizeof(number)];
  std::memcpy(raw, &number, sizeof(number));
  if (swap) std::reverse(raw, raw + sizeof(number));
  if (content.size() < place + sizeof(number)) content.resize(place + sizeof(number));
  std::memcpy(content.data() + place, raw, sizeof(number));
}

struct NiftiFile {
  std::array<int16_t, 8> dimensions{};
  std::array<float, 8> spacing{};
  float slope = 1;
  float intercept = 0;
  float offset = 352;

  template <typename Number>
  std::string bytes(int16_t type, const std::vector<Number>& values, bool swap = false) const {
    std::string content(352, '\0');
    const auto put = [&](size_t place, auto number) { put_number(content, place, number, swap); };
    put(0, int32_t{348});
    for (size_t i = 0; i < 8; ++i) {
      put(40 + 2 * i, dimensions[i]);
      put(76 + 4 * i, spacing[i]);
    }
    put(70, type);
    put(108, offset);
    put(112, slope);
    put(116, intercept);
    std::memcpy(content.data() + 344, "n+1", 4);
    for (size_t i = 0; i < values.size(); ++i) put(352 + i * sizeof(Number), values[i]);
    return content;
  }

  /// The same as NIfTI-2.
  template <typename Number>
  std::string second_bytes(int16_t type, const std::vector<Number>& values, bool swap = false) const {
    std::string content(544, '\0');
    const auto put = [&](size_t place, auto number) { put_number(content, place, number, swap); };
    put(0, int32_t{540});
    std::memcpy(content.data() + 4, "n+2\0\r\n\032\n", 8);
    put(12, type);
    for (size_t i = 0; i < 8; ++i) {
      put(16 + 8 * i, int64_t{dimensions[i]});
      put(104 + 8 * i, double{spacing[i]});
    }
    put(168, int64_t{544});
    put(176, double{slope});
    put(184, double{intercept});
    for (size_t i = 0; i < values.size(); ++i) put(544 + i * sizeof(Number), values[i]);
    return content;
  }
};

}  // namespace ddp::test

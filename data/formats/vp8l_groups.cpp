#include "data/formats/vp8l_groups.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp {
namespace {

/// Thrown if the stream is damaged or truncated.
struct Damaged {};

constexpr int kMaxCodeLength = 15;
constexpr int kColours = 256;
constexpr int kLengthSymbols = 24;
constexpr int kDistanceSymbols = 40;

/// Reads bits from the stream, beginning with the lowest bit of each byte.
class Vp8lBits {
 public:
  Vp8lBits(const uint8_t* bytes, size_t size) : bytes_(bytes), bits_(size * 8) {}

  uint32_t read(int count) {
    if (bits_ - position_ < static_cast<size_t>(count)) throw Damaged();
    uint32_t value = 0;
    for (int i = 0; i < count; ++i, ++position_) {
      value |= static_cast<uint32_t>(bytes_[position_ / 8] >> position_ % 8 & 1) << i;
    }
    return value;
  }

 private:
  const uint8_t* bytes_;
  size_t bits_;
  size_t position_ = 0;
};

/// A canonical Huffman code.
class HuffmanCode {
 public:
  explicit HuffmanCode(const std::vector<int>& lengths) {
    for (const int length : lengths) ++counts_.at(length);
    counts_[0] = 0;
    for (int length = 1; length <= kMaxCodeLength; ++length) {
      for (size_t symbol = 0; symbol < lengths.size(); ++symbol) {
        if (lengths[symbol] == length) symbols_.push_back(static_cast<int>(symbol));
      }
    }
    if (symbols_.empty()) throw Damaged();
    int unused = 1;
    for (int length = 1; length <= kMaxCodeLength; ++length) unused = 2 * unused - counts_[length];
    if (symbols_.size() > 1 && unused != 0) throw Damaged();
  }

  int read(Vp8lBits& bits) const {
    if (symbols_.size() == 1) return symbols_[0];  // a single symbol uses no bits, whatever its code length is
    int code = 0;
    int first = 0;
    int index = 0;
    for (int length = 1; length <= kMaxCodeLength; ++length) {
      code |= static_cast<int>(bits.read(1));
      if (code - first < counts_[length]) return symbols_[index + code - first];
      index += counts_[length];
      first = (first + counts_[length]) * 2;
      code *= 2;
    }
    throw Damaged();
  }

 private:
  std::array<int, kMaxCodeLength + 1> counts_{};
  std::vector<int> symbols_;  // in the order of their codes
};

HuffmanCode read_simple_code(Vp8lBits& bits, int alphabet) {
  std::vector<int> lengths(std::max(alphabet, kColours), 0);
  const bool has_two = bits.read(1) != 0;
  lengths[bits.read(bits.read(1) != 0 ? 8 : 1)] = 1;
  if (has_two) lengths[bits.read(8)] = 1;
  lengths.resize(alphabet);
  return HuffmanCode(lengths);
}

HuffmanCode read_code(Vp8lBits& bits, int alphabet) {
  if (bits.read(1) != 0) return read_simple_code(bits, alphabet);
  constexpr std::array kOrder{17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  std::vector<int> lengths_of_lengths(kOrder.size(), 0);
  const uint32_t used = 4 + bits.read(4);
  for (uint32_t i = 0; i < used; ++i) lengths_of_lengths[kOrder.at(i)] = static_cast<int>(bits.read(3));
  int codes = alphabet;
  if (bits.read(1) != 0) {
    codes = 2 + static_cast<int>(bits.read(2 + 2 * static_cast<int>(bits.read(3))));
    if (codes > alphabet) throw Damaged();
  }
  const HuffmanCode code(lengths_of_lengths);
  std::vector<int> lengths;
  int last = 8;
  while (static_cast<int>(lengths.size()) < alphabet && codes-- > 0) {
    const int symbol = code.read(bits);
    if (symbol <= kMaxCodeLength) {
      lengths.push_back(symbol);
      if (symbol != 0) last = symbol;
      continue;
    }
    const uint32_t times = symbol == 16 ? 3 + bits.read(2) : symbol == 17 ? 3 + bits.read(3) : 11 + bits.read(7);
    lengths.insert(lengths.end(), times, symbol == 16 ? last : 0);
  }
  if (static_cast<int>(lengths.size()) > alphabet) throw Damaged();
  lengths.resize(alphabet, 0);
  return HuffmanCode(lengths);
}

/// Returns the number that a prefix and the bits after it represent.
size_t read_prefixed(Vp8lBits& bits, int prefix) {
  if (prefix < 4) return prefix + 1;
  const int extra = (prefix - 2) / 2;
  return (size_t{2} + prefix % 2) * (size_t{1} << extra) + bits.read(extra) + 1;
}

/// Converts a distance code to a number of pixels to go back. The smallest codes refer to nearby pixels in two
/// dimensions.
size_t distance_back(size_t distance, int64_t width) {
  struct Offset {
    int x;
    int y;
  };
  static constexpr std::array<Offset, 120> kNearby{
      {{0, 1},  {1, 0},  {1, 1},  {-1, 1}, {0, 2},  {2, 0},  {1, 2},  {-1, 2}, {2, 1},  {-2, 1}, {2, 2}, {-2, 2},
       {0, 3},  {3, 0},  {1, 3},  {-1, 3}, {3, 1},  {-3, 1}, {2, 3},  {-2, 3}, {3, 2},  {-3, 2}, {0, 4}, {4, 0},
       {1, 4},  {-1, 4}, {4, 1},  {-4, 1}, {3, 3},  {-3, 3}, {2, 4},  {-2, 4}, {4, 2},  {-4, 2}, {0, 5}, {3, 4},
       {-3, 4}, {4, 3},  {-4, 3}, {5, 0},  {1, 5},  {-1, 5}, {5, 1},  {-5, 1}, {2, 5},  {-2, 5}, {5, 2}, {-5, 2},
       {4, 4},  {-4, 4}, {3, 5},  {-3, 5}, {5, 3},  {-5, 3}, {0, 6},  {6, 0},  {1, 6},  {-1, 6}, {6, 1}, {-6, 1},
       {2, 6},  {-2, 6}, {6, 2},  {-6, 2}, {4, 5},  {-4, 5}, {5, 4},  {-5, 4}, {3, 6},  {-3, 6}, {6, 3}, {-6, 3},
       {0, 7},  {7, 0},  {1, 7},  {-1, 7}, {5, 5},  {-5, 5}, {7, 1},  {-7, 1}, {4, 6},  {-4, 6}, {6, 4}, {-6, 4},
       {2, 7},  {-2, 7}, {7, 2},  {-7, 2}, {3, 7},  {-3, 7}, {7, 3},  {-7, 3}, {5, 6},  {-5, 6}, {6, 5}, {-6, 5},
       {8, 0},  {4, 7},  {-4, 7}, {7, 4},  {-7, 4}, {8, 1},  {8, 2},  {6, 6},  {-6, 6}, {8, 3},  {5, 7}, {-5, 7},
       {7, 5},  {-7, 5}, {8, 4},  {6, 7},  {-6, 7}, {7, 6},  {-7, 6}, {8, 5},  {7, 7},  {-7, 7}, {8, 6}, {8, 7}}};
  if (distance > kNearby.size()) return distance - kNearby.size();
  const Offset offset = kNearby.at(distance - 1);
  return static_cast<size_t>(std::max<int64_t>(1, offset.x + offset.y * width));
}

/// A cache of recently used colours, indexed by a hash of the colour. It is empty if its size is 0 bits.
class ColourCache {
 public:
  explicit ColourCache(int bits) : bits_(bits), colours_(bits == 0 ? 0 : size_t{1} << bits) {}
  int size() const { return static_cast<int>(colours_.size()); }
  uint32_t at(size_t index) const { return colours_.at(index); }
  void add(uint32_t colour) {
    if (bits_ != 0) colours_[colour * 0x1e35a7bdU >> (32 - bits_)] = colour;
  }

 private:
  int bits_;
  std::vector<uint32_t> colours_;
};

int read_cache_bits(Vp8lBits& bits) {
  if (bits.read(1) == 0) return 0;
  const int cache_bits = static_cast<int>(bits.read(4));
  if (cache_bits < 1 || cache_bits > 11) throw Damaged();
  return cache_bits;
}

/// Reads an image within the stream that has a single group of codes. Returns ARGB values, row by row.
std::vector<uint32_t> read_inner_image(Vp8lBits& bits, Vp8lSize size) {
  ColourCache cache(read_cache_bits(bits));
  const HuffmanCode green = read_code(bits, kColours + kLengthSymbols + cache.size());
  const HuffmanCode red = read_code(bits, kColours);
  const HuffmanCode blue = read_code(bits, kColours);
  const HuffmanCode alpha = read_code(bits, kColours);
  const HuffmanCode distance = read_code(bits, kDistanceSymbols);
  const auto count = static_cast<size_t>(size.width * size.height);
  std::vector<uint32_t> pixels;
  pixels.reserve(count);
  const auto add = [&](uint32_t colour) {
    pixels.push_back(colour);
    cache.add(colour);
  };
  while (pixels.size() < count) {
    const int symbol = green.read(bits);
    if (symbol < kColours) {
      const int reds = red.read(bits);
      const int blues = blue.read(bits);
      add(static_cast<uint32_t>(alpha.read(bits)) << 24 | reds << 16 | symbol << 8 | blues);
    } else if (symbol < kColours + kLengthSymbols) {
      const size_t length = read_prefixed(bits, symbol - kColours);
      const size_t back = distance_back(read_prefixed(bits, distance.read(bits)), size.width);
      if (back > pixels.size() || length > count - pixels.size()) throw Damaged();
      for (size_t i = 0; i < length; ++i) add(pixels[pixels.size() - back]);
    } else {
      add(cache.at(symbol - kColours - kLengthSymbols));
    }
  }
  return pixels;
}

int64_t divided(int64_t length, int bits) {
  return (length + (int64_t{1} << bits) - 1) >> bits;
}

Vp8lSize read_tiles(Vp8lBits& bits, Vp8lSize picture) {
  const int tile_bits = static_cast<int>(bits.read(3)) + 2;
  return {.width = divided(picture.width, tile_bits), .height = divided(picture.height, tile_bits)};
}

/// Skips the data of a transform. Returns the size of the picture that the transform applies to.
Vp8lSize skip_transform(Vp8lBits& bits, uint32_t kind, Vp8lSize picture) {
  constexpr uint32_t kSubtractGreen = 2;
  constexpr uint32_t kColourIndexing = 3;
  if (kind == kSubtractGreen) return picture;
  if (kind != kColourIndexing) {
    read_inner_image(bits, read_tiles(bits, picture));
    return picture;
  }
  const auto colours = static_cast<int64_t>(bits.read(8)) + 1;
  read_inner_image(bits, {.width = colours, .height = 1});
  const int packed = colours <= 2 ? 3 : colours <= 4 ? 2 : colours <= 16 ? 1 : 0;
  return {.width = divided(picture.width, packed), .height = picture.height};
}

int64_t count_groups(Vp8lBits& bits, Vp8lSize picture) {
  std::array<bool, 4> seen{};
  while (bits.read(1) != 0) {
    const uint32_t kind = bits.read(2);
    if (std::exchange(seen.at(kind), true)) throw Damaged();
    picture = skip_transform(bits, kind, picture);
  }
  read_cache_bits(bits);
  if (bits.read(1) == 0) return 1;
  uint32_t last = 0;
  for (const uint32_t pixel : read_inner_image(bits, read_tiles(bits, picture))) {
    last = std::max(last, pixel >> 8 & 0xffff);
  }
  return int64_t{last} + 1;
}

uint32_t number_at(std::string_view file, size_t position) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= static_cast<uint32_t>(static_cast<uint8_t>(file[position + i])) << 8 * i;
  return value;
}

std::optional<int64_t> count_in_chunk(std::string_view name, std::string_view content, Vp8lSize picture) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(content.data());
  constexpr size_t kHeaderBytes = 5;
  if (name == "VP8L" && content.size() > kHeaderBytes) {
    const uint32_t header = number_at(content, 1);
    const Vp8lSize own{.width = (header & 0x3fff) + 1, .height = (header >> 14 & 0x3fff) + 1};
    return count_vp8l_groups(bytes + kHeaderBytes, content.size() - kHeaderBytes, own);
  }
  const bool is_lossless_alpha = name == "ALPH" && content.size() > 1 && (content[0] & 3) == 1;
  if (is_lossless_alpha) return count_vp8l_groups(bytes + 1, content.size() - 1, picture);
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> count_vp8l_groups(const uint8_t* bytes, size_t size, Vp8lSize picture) {
  try {
    Vp8lBits bits(bytes, size);
    return count_groups(bits, picture);
  } catch (const Damaged&) {
    return std::nullopt;
  }
}

int64_t max_webp_groups(const uint8_t* bytes, size_t size, Vp8lSize picture) {
  std::string_view file(reinterpret_cast<const char*>(bytes), size);
  constexpr size_t kFileHeaderBytes = 12;
  constexpr size_t kChunkHeaderBytes = 8;
  if (file.starts_with("RIFF")) file.remove_prefix(std::min(file.size(), kFileHeaderBytes));
  int64_t most = 1;
  while (file.size() > kChunkHeaderBytes) {
    const std::string_view name = file.substr(0, 4);
    const size_t length = number_at(file, 4);
    file.remove_prefix(kChunkHeaderBytes);
    most = std::max(most, count_in_chunk(name, file.substr(0, length), picture).value_or(1));
    file.remove_prefix(std::min(file.size(), length + length % 2));
  }
  return most;
}

}  // namespace ddp

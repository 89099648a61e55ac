// GIF 87a and 89a: the first picture. https://www.w3.org/Graphics/GIF/spec-gif89a.txt
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include <ddprun/data/error.h>

#include "data/formats/picture_formats.h"

namespace ddp {
namespace {

using Palette = std::array<std::array<uint8_t, 3>, 256>;

/// LZW's table: each code is a string of indices, one longer than an earlier string.
class Strings {
 public:
  explicit Strings(int index_bits) : index_bits_(index_bits), clear_(1U << index_bits) {
    for (uint32_t i = 0; i < clear_; ++i) table_[i] = {.before = i, .length = 1, .last = static_cast<uint8_t>(i)};
    reset();
  }

  int code_bits() const { return bits_; }
  bool is_end(uint32_t code) const { return code == clear_ + 1; }

  /// Appends what `code` says; false when it says nothing.
  bool append(uint32_t code, std::vector<uint8_t>& indices) {
    if (code == clear_) {
      reset();
      return true;
    }
    const bool has_previous = previous_ < kMostCodes;
    const bool is_full = next_ == kMostCodes;
    // A code that is about to be made means the previous string and its first index once more.
    const bool is_next = has_previous && !is_full && code == next_;
    if (!is_next && code >= (has_previous ? next_ : clear_)) return false;
    const uint8_t first = append_string(is_next ? previous_ : code, indices);
    if (is_next) indices.push_back(first);
    if (has_previous && !is_full) add(first);
    previous_ = code;
    return true;
  }

 private:
  static constexpr uint32_t kMostCodes = 4096;
  struct String {
    uint32_t before;
    uint32_t length;
    uint8_t last;
  };

  void reset() {
    next_ = clear_ + 2;
    bits_ = index_bits_ + 1;
    previous_ = kMostCodes;
  }

  /// Returns its first index.
  uint8_t append_string(uint32_t code, std::vector<uint8_t>& indices) const {
    indices.resize(indices.size() + table_[code].length);
    uint8_t first = 0;
    auto at = indices.end();
    for (auto length = table_[code].length; length > 0; --length) {
      first = table_[code].last;
      *--at = first;
      code = table_[code].before;
    }
    return first;
  }

  void add(uint8_t last) {
    table_[next_] = {.before = previous_, .length = table_[previous_].length + 1, .last = last};
    if (++next_ == 1U << bits_ && bits_ < 12) ++bits_;
  }

  const int index_bits_;
  const uint32_t clear_;
  std::array<String, kMostCodes> table_{};
  uint32_t next_ = 0;  // the code that is made next
  int bits_ = 0;
  uint32_t previous_ = kMostCodes;  // none yet
};

class Gif {
 public:
  Gif(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options)
      : bytes_(bytes), path_(path), options_(options) {}

  Image decode() {
    skip(6);
    int64_t width = short_number();
    int64_t height = short_number();
    const uint8_t flags = byte();
    skip(2);
    // Colours that no palette names are grey, as Pillow has them.
    for (size_t i = 0; i < palette_.size(); ++i) palette_[i].fill(static_cast<uint8_t>(i));
    Palette own = palette_;
    read_palette(flags, palette_);
    const auto background = to_first_picture();
    const int64_t left = short_number(), top = short_number();
    const int64_t columns = short_number(), rows = short_number();
    if (columns == 0 || rows == 0) refuse("its picture has no pixels");
    // A picture that goes beyond the screen makes that larger.
    width = std::max(width, left + columns);
    height = std::max(height, top + rows);
    check_image_size(path_, height, width, options_);
    const uint8_t picture_flags = byte();
    if ((picture_flags & 0x80) != 0) {
      read_palette(picture_flags, own);
      palette_ = own;
    }
    const auto indices = unpack(static_cast<size_t>(columns * rows));

    Image image{
        .height = height, .width = width, .pixels = std::vector<uint8_t>(static_cast<size_t>(height * width * 3))};
    for (auto* rgb = image.pixels.data(); rgb != image.pixels.data() + image.pixels.size(); rgb += 3)
      put(rgb, background);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t y = top + ((picture_flags & 0x40) != 0 ? interlaced_row(i, rows) : i);
      for (int64_t x = 0; x < columns; ++x) {
        put(&image.pixels[static_cast<size_t>((y * width + left + x) * 3)],
            indices[static_cast<size_t>(i * columns + x)]);
      }
    }
    return image;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { throw DataError(path_, "not a valid GIF file: " + why); }

  uint8_t byte() {
    if (at_ >= bytes_.size()) refuse("it is cut short");
    return bytes_[at_++];
  }
  int64_t short_number() {
    const int64_t low = byte();
    return low | int64_t{byte()} << 8;
  }
  void skip(size_t count) {
    if (count > bytes_.size() - at_) refuse("it is cut short");
    at_ += count;
  }
  void put(uint8_t* rgb, uint8_t index) const { std::copy_n(palette_[index].begin(), 3, rgb); }

  void read_palette(uint8_t flags, Palette& palette) {
    if ((flags & 0x80) == 0) return;
    for (size_t i = 0; i < size_t{2} << (flags & 7); ++i) {
      for (auto& channel : palette[i]) channel = byte();
    }
  }

  /// Over the blocks before it. Returns the index that the screen is filled with: the transparent one, else 0.
  uint8_t to_first_picture() {
    uint8_t background = 0;
    for (uint8_t kind = byte(); kind != ','; kind = byte()) {
      if (kind == ';') refuse("it has no picture");
      if (kind != '!') continue;  // Pillow looks on as well
      const uint8_t label = byte();
      const uint8_t size = byte();
      const size_t begin = at_;
      skip(size);
      if (label == 0xF9 && size >= 4 && (bytes_[begin] & 1) != 0) background = bytes_[begin + 3];
      if (size == 0) continue;
      for (uint8_t more = byte(); more != 0; more = byte()) skip(more);
    }
    return background;
  }

  /// Number `i` in the file of a picture that comes in four passes: every eighth row, those between, …
  static int64_t interlaced_row(int64_t i, int64_t rows) {
    for (const auto& [first, step] : {std::pair<int64_t, int64_t>{0, 8}, {4, 8}, {2, 4}, {1, 2}}) {
      const int64_t count = (rows - first + step - 1) / step;
      if (i < count) return first + i * step;
      i -= count;
    }
    return rows - 1;
  }

  /// The next code of `bits`; nothing at the end of the data.
  std::optional<uint32_t> code(int bits) {
    while (bit_count_ < bits) {
      if (left_in_block_ == 0) {
        left_in_block_ = byte();
        if (left_in_block_ == 0) return std::nullopt;
      }
      --left_in_block_;
      buffer_ |= uint32_t{byte()} << bit_count_;
      bit_count_ += 8;
    }
    const uint32_t value = buffer_ & ((1U << bits) - 1);
    buffer_ >>= bits;
    bit_count_ -= bits;
    return value;
  }

  std::vector<uint8_t> unpack(size_t count) {
    const int index_bits = byte();
    if (index_bits < 1 || index_bits > 8) refuse("its pixels have " + std::to_string(index_bits) + " bits");
    Strings strings(index_bits);
    std::vector<uint8_t> indices;  // grows with what the file has, not with what it claims
    while (indices.size() < count) {
      const auto read = code(strings.code_bits());
      if (!read || strings.is_end(*read)) refuse("its pixels are cut short");
      if (!strings.append(*read, indices)) refuse("its pixels have a code that means nothing");
    }
    indices.resize(count);
    return indices;
  }

  const std::vector<uint8_t>& bytes_;
  const std::filesystem::path& path_;
  const DecodeOptions& options_;
  size_t at_ = 0;
  Palette palette_{};
  uint32_t buffer_ = 0;
  int bit_count_ = 0;
  uint8_t left_in_block_ = 0;
};

}  // namespace

Image decode_gif(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  return Gif(bytes, path, options).decode();
}

}  // namespace ddp

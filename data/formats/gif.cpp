// Decodes the first picture of a GIF file (87a and 89a). https://www.w3.org/Graphics/GIF/spec-gif89a.txt
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <ddprun/data/byte_source.h>

#include "data/formats/limits.h"
#include "data/formats/picture_formats.h"

namespace ddp {
namespace {

using Palette = std::array<std::array<uint8_t, 3>, 256>;

constexpr int kMaxCodeBits = 12;
constexpr uint32_t kMaxCodes = 1U << kMaxCodeBits;
constexpr uint32_t kMaxStringLength = kMaxCodes + 1;  // the maximum length of a string, in indices

/// The table of LZW. Each code stands for a string of indices that is one index longer than an earlier string. As in
/// Pillow, an index may have up to 12 bits; a pixel uses the lower eight.
class LzwTable {
 public:
  explicit LzwTable(int index_bits) : index_bits_(index_bits), clear_(1U << index_bits) {
    for (uint32_t i = 0; i < clear_; ++i)
      table_[i] = {.before = i, .length = 1, .first = static_cast<uint8_t>(i), .last = static_cast<uint8_t>(i)};
    reset();
  }

  int code_bits() const { return bits_; }
  bool is_end(uint32_t code) const { return code == clear_ + 1; }

  /// Returns the number of indices that `code` stands for; nullopt if the code is invalid. If `to` is not null, writes
  /// the first `room` of these indices to it.
  std::optional<uint32_t> append(uint32_t code, uint8_t* to, size_t room) {
    if (code == clear_) {
      reset();
      return 0;
    }
    const bool has_previous = previous_ < kMaxCodes;
    // A code that is added only now stands for the previous string followed by its first index.
    const bool is_next = has_previous && code == next_;
    if (!is_next && code >= (has_previous ? next_ : clear_)) return std::nullopt;
    const uint32_t known = is_next ? previous_ : code;
    const uint32_t length = table_[known].length;
    const uint8_t first = table_[known].first;
    if (to != nullptr) {
      write(known, to, room);
      if (is_next && length < room) to[length] = first;
    }
    if (has_previous && next_ < kMaxCodes) add(first);
    previous_ = code;
    return length + (is_next ? 1 : 0);
  }

 private:
  struct String {
    uint32_t before;
    uint32_t length;
    uint8_t first;
    uint8_t last;
  };

  void reset() {
    next_ = clear_ + 2;
    bits_ = index_bits_ + 1;
    previous_ = kMaxCodes;
  }

  void write(uint32_t code, uint8_t* to, size_t room) const {
    for (auto at = table_[code].length; at > 0; --at) {
      if (at <= room) to[at - 1] = table_[code].last;
      code = table_[code].before;
    }
  }

  void add(uint8_t last) {
    const String& before = table_[previous_];
    table_[next_] = {.before = previous_, .length = before.length + 1, .first = before.first, .last = last};
    if (++next_ == 1U << bits_ && bits_ < kMaxCodeBits) ++bits_;
  }

  const int index_bits_;
  const uint32_t clear_;
  std::array<String, kMaxCodes> table_{};
  uint32_t next_ = 0;  // the next code to be added
  int bits_ = 0;
  uint32_t previous_ = kMaxCodes;  // no previous code yet
};

/// Reads numbers of a few bits, lowest bits first, from blocks that begin with their length.
class Bits {
 public:
  Bits(const std::vector<uint8_t>& bytes, size_t at) : bytes_(bytes), at_(at) {}

  std::optional<uint32_t> byte() { return at_ < bytes_.size() ? std::optional<uint32_t>(bytes_[at_++]) : std::nullopt; }

  /// Returns the next number of `bits` bits; nullopt at the end of the data or of the file.
  std::optional<uint32_t> read(int bits) {
    while (bit_count_ < bits) {
      if (left_in_block_ == 0) left_in_block_ = byte().value_or(0);
      if (left_in_block_ == 0) return std::nullopt;
      --left_in_block_;
      const auto next = byte();
      if (!next) return std::nullopt;
      buffer_ |= *next << bit_count_;
      bit_count_ += 8;
    }
    const uint32_t value = buffer_ & ((1U << bits) - 1);
    buffer_ >>= bits;
    bit_count_ -= bits;
    return value;
  }

 private:
  const std::vector<uint8_t>& bytes_;
  size_t at_;
  uint32_t buffer_ = 0;
  int bit_count_ = 0;
  uint32_t left_in_block_ = 0;
};

/// The position of the picture on the screen.
struct Frame {
  int64_t left = 0;
  int64_t top = 0;
  int64_t columns = 0;
  int64_t rows = 0;
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
    // As in Pillow, colours that are in no palette are grey.
    for (size_t i = 0; i < palette_.size(); ++i) palette_[i].fill(static_cast<uint8_t>(i));
    Palette own = palette_;
    read_palette(flags, palette_);
    const auto background = skip_to_first_picture();
    const int64_t left = short_number(), top = short_number();
    const int64_t columns = short_number(), rows = short_number();
    if (columns == 0 || rows == 0) refuse("its picture has no pixels");
    // A picture that extends beyond the screen enlarges it.
    width = std::max(width, left + columns);
    height = std::max(height, top + rows);
    check_image_size(path_, height, width, options_);
    const uint8_t picture_flags = byte();
    if ((picture_flags & 0x80) != 0) {
      read_palette(picture_flags, own);
      palette_ = own;
    }
    const Frame frame{.left = left, .top = top, .columns = columns, .rows = rows};
    unpack(columns * rows, {}, [](uint32_t) {});  // checks that the file is complete before memory is allocated
    check_unpacked_size(path_, height * width * 3, static_cast<int64_t>(bytes_.size()));
    Image image{
        .height = height, .width = width, .pixels = std::vector<uint8_t>(static_cast<size_t>(height * width * 3))};
    for (auto* rgb = image.pixels.data(); rgb != image.pixels.data() + image.pixels.size(); rgb += 3)
      put(rgb, background);
    put_picture(frame, (picture_flags & 0x40) != 0, image);
    return image;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { throw DataError(path_, "not a valid GIF file: " + why); }

  uint8_t byte() {
    if (at_ >= bytes_.size()) refuse("it is truncated");
    return bytes_[at_++];
  }
  int64_t short_number() {
    const int64_t low = byte();
    return low | int64_t{byte()} << 8;
  }
  void skip(size_t count) {
    if (count > bytes_.size() - at_) refuse("it is truncated");
    at_ += count;
  }
  void put(uint8_t* rgb, uint8_t index) const { std::copy_n(palette_[index].begin(), 3, rgb); }

  void read_palette(uint8_t flags, Palette& palette) {
    if ((flags & 0x80) == 0) return;
    for (size_t i = 0; i < size_t{2} << (flags & 7); ++i) {
      for (auto& channel : palette[i]) channel = byte();
    }
  }

  /// Skips the blocks before the first picture. Returns the index that the screen is filled with: the transparent
  /// index, otherwise 0.
  uint8_t skip_to_first_picture() {
    uint8_t background = 0;
    for (uint8_t kind = byte(); kind != ','; kind = byte()) {
      if (kind == ';') refuse("it has no picture");
      if (kind != '!') continue;  // Pillow also skips unknown bytes
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

  /// Returns the row for position `i` in the file. Interlaced pictures are stored in four passes: every eighth row,
  /// then the rows halfway between these, and so on.
  static int64_t interlaced_row(int64_t i, int64_t rows) {
    for (const auto& [first, step] : {std::pair<int64_t, int64_t>{0, 8}, {4, 8}, {2, 4}, {1, 2}}) {
      const int64_t count = (rows - first + step - 1) / step;
      if (i < count) return first + i * step;
      i -= count;
    }
    return rows - 1;
  }

  /// Reads codes until they have produced `count` indices. Writes each string to `to` if that is not empty, and then
  /// passes its length to `take`.
  template <typename Take>
  void unpack(int64_t count, std::span<uint8_t> to, const Take& take) const {
    Bits bits(bytes_, at_);
    const int index_bits = static_cast<int>(bits.byte().value_or(kMaxCodeBits + 1));
    if (index_bits > kMaxCodeBits) refuse("its pixels have " + std::to_string(index_bits) + " bits");
    LzwTable strings(index_bits);
    while (count > 0) {
      const auto code = bits.read(strings.code_bits());
      if (!code || strings.is_end(*code)) refuse("its pixels are truncated");
      const auto length = strings.append(*code, to.data(), to.size());
      if (!length) refuse("its pixels have an invalid code");
      take(*length);
      count -= *length;
    }
  }

  void put_picture(const Frame& frame, bool is_interlaced, Image& image) const {
    std::array<uint8_t, kMaxStringLength> string{};
    int64_t row = 0;
    int64_t column = 0;
    uint8_t* rgb = nullptr;
    unpack(frame.columns * frame.rows, string, [&](uint32_t length) {
      for (uint32_t i = 0; i < length && row < frame.rows; ++i, rgb += 3) {
        if (column == 0) {
          const int64_t y = frame.top + (is_interlaced ? interlaced_row(row, frame.rows) : row);
          rgb = &image.pixels[static_cast<size_t>((y * image.width + frame.left) * 3)];
        }
        put(rgb, string[i]);
        if (++column == frame.columns) {
          column = 0;
          ++row;
        }
      }
    });
  }

  const std::vector<uint8_t>& bytes_;
  const std::filesystem::path& path_;
  const DecodeOptions& options_;
  size_t at_ = 0;
  Palette palette_{};
};

}  // namespace

Image decode_gif(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  return Gif(bytes, path, options).decode();
}

}  // namespace ddp

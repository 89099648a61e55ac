#include "data/formats/npy_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string_view>
#include <utility>

#include <ddprun/data/byte_source.h>

namespace ddp {
namespace {

constexpr std::string_view kNpyMagic("\x93NUMPY", 6);
constexpr uint64_t kMaxHeaderBytes = 10'000;  // also the limit of NumPy
constexpr size_t kMaxDimensions = 64;         // also the limit of NumPy

// Quotes text from the file in a message: always on one line, whatever the text contains.
std::string shown(std::string_view text) {
  constexpr size_t kMax = 60;
  std::string line(text.substr(0, kMax));
  for (char& letter : line) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return line;
}

/// Parses the literal of a Python dict: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class Literal {
 public:
  Literal(std::string_view text, const std::filesystem::path& path) : text_(text), path_(path) {}

  NpyHeader read() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accepts('}')) {
      const std::string_view key = string();
      expect(':');
      if (key == "descr" && !has_descr) {
        set_descr(header, description());
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        header.is_fortran = boolean();
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        header.shape = tuple();
        has_shape = true;
      } else {
        fail();
      }
      if (!accepts(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (!text_.empty() || !has_descr || !has_order || !has_shape) fail();
    return header;
  }

 private:
  [[noreturn]] void fail() const {
    throw DataError(path_,
                    "expected a header as NumPy writes it, {'descr': '<f4', 'fortran_order': False, 'shape': "
                    "(3, 4), }, got something else near \"" +
                        shown(text_) + "\": the file is damaged");
  }

  void skip_blanks() { text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r\n"), text_.size())); }

  bool accepts(char letter) {
    skip_blanks();
    if (!text_.starts_with(letter)) return false;
    text_.remove_prefix(1);
    return true;
  }

  void expect(char letter) {
    if (!accepts(letter)) fail();
  }

  std::string_view string() {
    const char quote = accepts('\'') ? '\'' : '"';
    if (quote == '"') expect('"');
    const auto end = text_.find_first_of("'\"\\");
    if (end == std::string_view::npos || text_[end] != quote) fail();
    const auto found = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    return found;
  }

  std::string_view description() {
    skip_blanks();
    if (text_.starts_with('[') || text_.starts_with('(')) {
      throw DataError(path_,
                      "holds structures with named fields, which no tensor has: save each field as an array of "
                      "its own");
    }
    return string();
  }

  bool boolean() {
    skip_blanks();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (!text_.starts_with(word)) continue;
      text_.remove_prefix(word.size());
      return value;
    }
    fail();
  }

  int64_t number() {
    skip_blanks();
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    const auto digits = std::min(text_.find_first_not_of("0123456789"), text_.size());
    if (digits == 0) fail();
    int64_t value = 0;
    for (const char digit : text_.substr(0, digits)) {
      if (value > (kMax - (digit - '0')) / 10) fail();
      value = 10 * value + (digit - '0');
    }
    text_.remove_prefix(digits);
    if (text_.starts_with('L')) text_.remove_prefix(1);  // the suffix of long integers in Python 2
    return value;
  }

  std::vector<int64_t> tuple() {
    std::vector<int64_t> sizes;
    expect('(');
    while (!accepts(')')) {
      sizes.push_back(number());
      if (sizes.size() > kMaxDimensions) fail();
      if (accepts(',')) continue;
      if (sizes.size() == 1) fail();  // (3) is a number, not a tuple
      expect(')');
      break;
    }
    return sizes;
  }

  void set_descr(NpyHeader& header, std::string_view descr) const {
    std::string_view rest = descr;
    constexpr bool kIsBig = std::endian::native == std::endian::big;
    header.is_big_endian = false;
    if (rest.starts_with('<') || rest.starts_with('>')) header.is_big_endian = rest.starts_with('>') != kIsBig;
    if (!rest.empty() && std::string_view("<>|=").find(rest.front()) != std::string_view::npos) rest.remove_prefix(1);
    if (rest.starts_with('O')) {
      throw DataError(path_, "holds pickled Python objects, which are not supported: save an array of numbers");
    }
    static constexpr std::array<std::string_view, 14> kKnown = {"b1", "i1", "i2", "i4", "i8", "u1", "u2",
                                                                "u4", "u8", "f2", "f4", "f8", "c8", "c16"};
    if (std::ranges::find(kKnown, rest) == kKnown.end()) {
      throw DataError(path_, "holds elements of NumPy's type '" + shown(descr) +
                                 "', which no tensor has: expected bool, integers, floats of 16 to 64 bits or complex "
                                 "numbers");
    }
    header.kind = rest.front();
    header.item_bytes = rest == "c16" ? 16 : rest[1] - '0';
  }

  std::string_view text_;
  const std::filesystem::path& path_;
};

void set_count(NpyHeader& header, const std::filesystem::path& path) {
  const bool is_empty = std::ranges::find(header.shape, 0) != header.shape.end();
  uint64_t bytes = static_cast<uint64_t>(header.item_bytes);
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t size : header.shape) {
    const auto factor = static_cast<uint64_t>(std::max<int64_t>(size, 1));  // zeros are skipped, as for strides
    if (bytes > kMax / factor) throw DataError(path, "its header names more than 2^63 bytes: it is damaged");
    bytes *= factor;
  }
  header.count = is_empty ? 0 : bytes / static_cast<uint64_t>(header.item_bytes);
}

std::string tuple_of(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string descr_of(const NpyHeader& header) {
  const std::string type = header.kind + std::to_string(header.item_bytes);
  if (header.item_bytes == 1) return "|" + type;
  return (header.is_big_endian == (std::endian::native == std::endian::big) ? "<" : ">") + type;
}

}  // namespace

NpyHeader read_npy_header(const ReadBytes& read, const std::filesystem::path& path) {
  std::array<uint8_t, 8> begin{};
  read(begin);
  if (!std::equal(kNpyMagic.begin(), kNpyMagic.end(), begin.begin(),
                  [](char expected, uint8_t got) { return static_cast<uint8_t>(expected) == got; })) {
    throw DataError(path, "expected a .npy file, which begins with \"\\x93NUMPY\", got other bytes");
  }
  const int version = begin[6];
  if (version < 1 || version > 3 || begin[7] != 0) {
    throw DataError(path, "expected version 1.0, 2.0 or 3.0 of the .npy format, got " + std::to_string(begin[6]) + "." +
                              std::to_string(begin[7]));
  }
  std::array<uint8_t, 4> length{};
  const size_t digits = version == 1 ? 2 : 4;
  read(std::span(length).first(digits));
  const uint32_t bytes =
      uint32_t{length[0]} | uint32_t{length[1]} << 8 | uint32_t{length[2]} << 16 | uint32_t{length[3]} << 24;
  if (bytes > kMaxHeaderBytes) {
    throw DataError(path, "its header claims " + std::to_string(bytes) + " bytes, expected at most " +
                              std::to_string(kMaxHeaderBytes));
  }
  std::string text(bytes, '\0');
  read({reinterpret_cast<uint8_t*>(text.data()), text.size()});
  NpyHeader header = Literal(text, path).read();
  header.data_begin = begin.size() + digits + bytes;
  set_count(header, path);
  return header;
}

std::string npy_header(const NpyHeader& header) {
  constexpr size_t kGrowingDigits = 21;  // the space that NumPy reserves for the size of the dimension that may grow
  constexpr size_t kAlignment = 64;
  std::string text = "{'descr': '" + descr_of(header) +
                     "', 'fortran_order': " + (header.is_fortran ? "True" : "False") +
                     ", 'shape': " + tuple_of(header.shape) + ", }";
  if (!header.shape.empty()) {
    const int64_t growing = header.is_fortran ? header.shape.back() : header.shape.front();
    text.append(kGrowingDigits - std::to_string(growing).size(), ' ');
  }
  for (const auto& [version, digits] : {std::pair{1, 2}, std::pair{2, 4}}) {
    const size_t before = kNpyMagic.size() + 2 + static_cast<size_t>(digits);
    const size_t padding = kAlignment - (before + text.size() + 1) % kAlignment;
    const size_t length = text.size() + 1 + padding;
    if (version == 1 && length > std::numeric_limits<uint16_t>::max()) continue;
    std::string whole(kNpyMagic);
    whole.append({static_cast<char>(version), '\0'});
    for (int i = 0; i < digits; ++i) whole += static_cast<char>(length >> (8 * i));
    return whole + text + std::string(padding, ' ') + "\n";
  }
  return {};  // unreachable: 64 dimensions need less than 64 KiB
}

}  // namespace ddp

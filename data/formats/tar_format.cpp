#include "data/formats/tar_format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include <ddprun/data/byte_source.h>

namespace ddp {
namespace {

constexpr uint64_t kBlock = 512;
constexpr uint64_t kMaxExtensionBytes = uint64_t{1} << 20;  // for long names and pax records
constexpr size_t kNameBytes = 100;
constexpr size_t kSizeOffset = 124;
constexpr size_t kChecksumOffset = 148;
constexpr size_t kTypeOffset = 156;
constexpr size_t kPrefixOffset = 345;
constexpr size_t kPrefixBytes = 155;
constexpr int kOctal = 8;

using Block = std::array<uint8_t, kBlock>;

std::string_view field(const Block& block, size_t place, size_t size) {
  const std::string_view whole(reinterpret_cast<const char*>(block.data()) + place, size);
  return whole.substr(0, whole.find('\0'));
}

/// Parses an octal number, or a base-256 number if the first bit is set; nullopt for anything else.
std::optional<uint64_t> number(const Block& block, size_t place, size_t size) {
  constexpr uint8_t kBase256 = 0x80;
  if (block[place] == kBase256) {
    uint64_t value = 0;
    for (size_t i = place + 1; i < place + size; ++i) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | block[i];
    }
    return value;
  }
  std::string_view text = field(block, place, size);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  text = text.substr(0, text.find(' '));
  uint64_t value = 0;
  if (text.empty()) return value;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value, kOctal);
  if (error != std::errc() || end != text.end()) return std::nullopt;
  return value;
}

/// Checks the sum of all bytes, with the bytes of the checksum counted as spaces. Old programs add signed bytes.
bool has_checksum(const Block& block) {
  const auto stored = number(block, kChecksumOffset, 8);
  if (!stored) return false;
  int64_t plain = 0, of_signed = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    const uint8_t byte = i >= kChecksumOffset && i < kChecksumOffset + 8 ? uint8_t{' '} : block[i];
    plain += byte;
    of_signed += static_cast<int8_t>(byte);
  }
  return static_cast<int64_t>(*stored) == plain || static_cast<int64_t>(*stored) == of_signed;
}

uint64_t padding_of(uint64_t size) {
  return (kBlock - size % kBlock) % kBlock;
}

/// Returns the program that can decompress data with this beginning; empty if it is unknown.
std::string_view unpacker_of(std::span<const uint8_t> begin) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kPacked = {{
      {{"\xfd"
        "7zXZ\0",
        6},
       "xz"},
      {"BZh", "bzip2"},
      {{"\x28\xb5\x2f\xfd", 4}, "zstd"},
      {{"\x04\x22\x4d\x18", 4}, "lz4"},
  }};
  const std::string_view bytes(reinterpret_cast<const char*>(begin.data()), begin.size());
  for (const auto& [magic, program] : kPacked) {
    if (bytes.starts_with(magic)) return program;
  }
  return {};
}

/// Returns the value of `key` in pax records, which have the form "LENGTH KEY=VALUE\n"; the last one takes precedence.
/// If they are damaged, sets `is_valid` to false.
std::optional<std::string> pax_value(std::string_view records, std::string_view key, bool& is_valid) {
  std::optional<std::string> value;
  while (!records.empty() && records.front() != '\0') {
    size_t length = 0;
    const auto [end, error] = std::from_chars(records.begin(), records.end(), length);
    const auto digits = static_cast<size_t>(end - records.begin());
    is_valid = is_valid && error == std::errc() && length > digits + 1 && length <= records.size() &&
               records[digits] == ' ' && records[length - 1] == '\n';
    if (!is_valid) return std::nullopt;
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    const auto equals = record.find('=');
    is_valid = equals != std::string_view::npos;
    if (!is_valid) return std::nullopt;
    if (record.substr(0, equals) == key) value = std::string(record.substr(equals + 1));
    records.remove_prefix(length);
  }
  return value;
}

}  // namespace

struct TarReader::Header {
  std::string name{};
  uint64_t size = 0;
  char type = '0';

  // A header of an unknown type is treated as a file, as in tarfile.
  bool has_content() const { return std::string_view("123456").find(type) == std::string_view::npos; }
  bool is_file() const { return type == '0' || type == '7'; }
};

/// The information about a file from the headers that precede its own header.
struct TarReader::Extensions {
  std::string long_name{};
  std::string pax_name{};
  std::optional<uint64_t> pax_size{};

  void apply(Header& header) const {
    if (!long_name.empty()) header.name = long_name;
    if (!pax_name.empty()) header.name = pax_name;
    if (pax_size) header.size = *pax_size;
    constexpr char kOldRegularFile = '\0';
    if (header.type == kOldRegularFile) header.type = header.name.ends_with('/') ? '5' : '0';
  }
};

TarReader::TarReader(const std::string& url, uint64_t most_file_bytes)
    : stream_(url), max_file_bytes_(most_file_bytes) {}

void TarReader::fail(const std::string& problem) const {
  throw DataError(stream_.url(), problem + " at byte " + std::to_string(at_) + ": the archive is damaged or truncated");
}

void TarReader::refuse_sparse() const {
  throw DataError(stream_.url(),
                  "the file at byte " + std::to_string(at_) +
                      " is sparse, which is not supported: make the archive without tar's option --sparse");
}

bool TarReader::read_header(Header& header) {
  at_ = stream_.position();
  Block block{};
  const size_t count = stream_.read(block);
  if (count == 0 && at_ == 0) fail("expected a tar archive, got nothing");
  is_end_missing_ = count == 0;
  if (count == 0) return false;
  if (const auto program = unpacker_of(block); at_ == 0 && !program.empty()) {
    throw DataError(stream_.url(), "is compressed by " + std::string(program) +
                                       ", expected a tar archive, plain or compressed by gzip: read it by a command, "
                                       "such as 'pipe:" +
                                       std::string(program) + " -dc FILE'");
  }
  if (count < kBlock) fail("expected a header of 512 bytes, got " + std::to_string(count));
  if (std::ranges::all_of(block, [](uint8_t byte) { return byte == 0; })) return false;
  const auto size = number(block, kSizeOffset, 12);
  if (!size || !has_checksum(block)) fail("expected the header of a file, got other bytes");
  header.size = *size;
  header.type = static_cast<char>(block[kTypeOffset]);
  header.name = field(block, 0, kNameBytes);
  const std::string_view prefix = field(block, kPrefixOffset, kPrefixBytes);
  if (!prefix.empty() && std::string_view("LKS").find(header.type) == std::string_view::npos) {
    header.name = std::string(prefix) + "/" + header.name;
  }
  return true;
}

std::string TarReader::read_extension(const Header& header) {
  if (header.size > kMaxExtensionBytes)
    fail("a long name or pax header claims " + std::to_string(header.size) + " bytes");
  begin_content(header);
  const std::vector<uint8_t> bytes = read();
  return {bytes.begin(), bytes.end()};
}

void TarReader::take_pax(const Header& header, Extensions& extensions) {
  const std::string records = read_extension(header);
  bool is_valid = true;
  if (auto name = pax_value(records, "path", is_valid)) extensions.pax_name = *std::move(name);
  if (const auto text = pax_value(records, "size", is_valid)) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    is_valid = is_valid && error == std::errc() && end == text->data() + text->size();
    extensions.pax_size = value;
  }
  if (!is_valid) fail("expected a pax header of records, got other bytes");
  if (records.find("GNU.sparse.") != std::string::npos) refuse_sparse();
}

/// Returns true if the header describes the file that follows.
bool TarReader::take_extension(const Header& header, Extensions& extensions) {
  switch (header.type) {
    case 'L':
      extensions.long_name = read_extension(header);
      extensions.long_name = extensions.long_name.substr(0, extensions.long_name.find('\0'));
      return true;
    case 'K':
    case 'g':
      read_extension(header);
      return true;
    case 'x':
      take_pax(header, extensions);
      return true;
    case 'S':
      refuse_sparse();
    default:
      return false;
  }
}

void TarReader::begin_content(const Header& header) {
  if (header.has_content() && header.size > uint64_t{std::numeric_limits<int64_t>::max()} - kBlock) {
    fail("a file's size is damaged");
  }
  remaining_ = header.has_content() ? header.size : 0;
  padding_ = padding_of(remaining_);
}

std::optional<TarMember> TarReader::next() {
  Extensions extensions;
  std::optional<uint64_t> first;
  while (true) {
    skip_rest();
    Header header;
    if (!read_header(header)) {
      if (first) fail("expected a file after its long name or pax header, got the end of the archive");
      return std::nullopt;
    }
    if (!first) first = at_;
    if (take_extension(header, extensions)) continue;
    extensions.apply(header);
    begin_content(header);
    if (header.is_file()) return TarMember{.name = header.name, .size = header.size, .header = *first};
    extensions = {};
    first.reset();
  }
}

void TarReader::require_size() const {
  if (remaining_ <= max_file_bytes_) return;
  throw DataError(stream_.url(), "the file at byte " + std::to_string(at_) + " claims " + std::to_string(remaining_) +
                                     " bytes, expected at most " + std::to_string(max_file_bytes_) +
                                     ": raise the limit if that is right");
}

std::vector<uint8_t> TarReader::read() {
  require_size();
  constexpr uint64_t kAtOnce = uint64_t{1} << 20;
  std::vector<uint8_t> bytes;
  bytes.reserve(static_cast<size_t>(std::min(remaining_, 16 * kAtOnce)));
  while (remaining_ > 0) {
    const auto piece = static_cast<size_t>(std::min(remaining_, kAtOnce));
    // Reserves memory for the whole file: physical memory is used only when it is written, and growing the vector would
    // need twice as much.
    if (bytes.size() + piece > bytes.capacity()) bytes.reserve(bytes.size() + static_cast<size_t>(remaining_));
    bytes.resize(bytes.size() + piece);
    const size_t count = stream_.read(std::span(bytes).last(piece));
    if (count < piece) fail("expected " + std::to_string(remaining_ - count) + " further bytes of the file");
    remaining_ -= piece;
  }
  return bytes;
}

void TarReader::check_end() {
  if (is_end_missing_) fail("expected the blocks of zeros that end an archive, got nothing");
  stream_.finish();
}

void TarReader::skip_rest() {
  // Skipping does not detect missing bytes, so the last byte is read.
  const uint64_t count = remaining_ + padding_;
  remaining_ = padding_ = 0;
  if (count == 0) return;
  std::array<uint8_t, 1> last{};
  if (stream_.skip(count - 1) < count - 1 || stream_.read(last) == 0) fail("expected the rest of the file");
}

bool TarReader::seek(uint64_t header) {
  remaining_ = padding_ = 0;
  is_end_missing_ = false;
  return stream_.seek(header);
}

std::string tar_padding(uint64_t size) {
  return std::string(static_cast<size_t>(padding_of(size)), '\0');
}

std::string tar_header(const std::string& name, uint64_t size) {
  const auto block = [](const std::string& of, uint64_t bytes, char type) {
    std::string header(kBlock, '\0');
    const auto put = [&](size_t place, const std::string& text) { header.replace(place, text.size(), text); };
    const auto octal = [](uint64_t value, size_t digits) {
      std::string text(digits, '0');
      for (size_t i = digits; i-- > 0; value /= kOctal) text[i] = static_cast<char>('0' + value % kOctal);
      return text;
    };
    put(0, of.substr(0, kNameBytes));
    put(100, "0000444");
    put(108, "0000000");
    put(116, "0000000");
    constexpr uint64_t kMaxOctal = (uint64_t{1} << 33) - 1;
    if (bytes <= kMaxOctal) {
      put(kSizeOffset, octal(bytes, 11));
    } else {
      std::string digits(12, '\0');
      digits[0] = static_cast<char>(0x80);
      for (size_t i = 0; i < 8; ++i) digits[11 - i] = static_cast<char>(bytes >> (8 * i));
      put(kSizeOffset, digits);
    }
    put(136, octal(0, 11));
    put(kChecksumOffset, "        ");
    header[kTypeOffset] = type;
    put(257, std::string("ustar  ", 7));
    uint64_t sum = 0;
    for (const char byte : header) sum += static_cast<uint8_t>(byte);
    put(kChecksumOffset, octal(sum, 6) + '\0' + ' ');
    return header;
  };
  if (name.size() <= kNameBytes) return block(name, size, '0');
  const std::string long_name = name + '\0';
  return block("././@LongLink", long_name.size(), 'L') + long_name + tar_padding(long_name.size()) +
         block(name, size, '0');
}

}  // namespace ddp

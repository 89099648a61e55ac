// Zip files as other writers make them: torch.save (miniz), and archivers that pack a .pt anew.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/pt/crc32.h"
#include "checkpoint/storage/byte_sink.h"

namespace ddp::test {

/// Appends little-endian fields.
class Record {
 public:
  template <std::integral Integer>
  Record& add(Integer value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Record& add(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// As torch.save writes: sizes and checksum behind the data, and in files above 4 GiB each local header's zip64 field
/// with the header's own position.
class TorchZip {
 public:
  explicit TorchZip(storage::ByteSink& sink, bool has_checksums = true) : sink_(sink), has_checksums_(has_checksums) {}

  void add(std::string_view name, std::string_view data) {
    begin(name, data.size());
    put(data);
    end(name, data.size(), pt::crc32(data.data(), data.size()));
  }

  /// `size` zeros, whose checksum is `crc32`.
  void add_zeros(std::string_view name, uint64_t size, uint32_t crc32) {
    begin(name, size);
    const std::string zeros(size_t{1} << 20, '\0');
    for (uint64_t left = size; left > 0; left -= std::min<uint64_t>(left, zeros.size())) {
      put(std::string_view(zeros).substr(0, left));
    }
    end(name, size, crc32);
  }

  void finish() {
    const auto directory = position_;
    put(lines_.bytes());
    const uint64_t size = position_ - directory;
    Record end;
    end.add(uint32_t{0x06064b50}).add(uint64_t{44}).add(uint16_t{0x031e}).add(uint16_t{45}).add(uint64_t{0});
    end.add(count_).add(count_).add(size).add(directory);
    end.add(uint32_t{0x07064b50}).add(uint32_t{0}).add(position_).add(uint32_t{1});
    end.add(uint32_t{0x06054b50}).add(uint32_t{0});
    end.add(static_cast<uint16_t>(count_)).add(static_cast<uint16_t>(count_));
    end.add(static_cast<uint32_t>(size)).add(small(directory)).add(uint16_t{0});
    put(end.bytes());
  }

  /// Where the next entry begins.
  uint64_t position() const { return position_; }

 private:
  static constexpr uint64_t kIn64 = 0xffffffff;
  static uint16_t flags(uint64_t size) { return size > 0 ? 0x808 : 0x800; }
  static uint32_t small(uint64_t value) { return static_cast<uint32_t>(std::min(value, kIn64)); }

  void begin(std::string_view name, uint64_t size) {
    begin_ = position_;
    Record extra;
    const auto large = (size >= kIn64 ? 16 : 0) + (begin_ >= kIn64 ? 8 : 0);
    is_large_ = large > 0;
    if (is_large_) extra.add(uint16_t{1}).add(static_cast<uint16_t>(large));
    if (size >= kIn64) extra.add(size).add(uint64_t{0});
    if (begin_ >= kIn64) extra.add(begin_);
    const auto unpadded = begin_ + 30 + name.size() + extra.bytes().size() + 4;
    const auto padding = (64 - unpadded % 64) % 64;
    extra.add(uint16_t{0x4246}).add(static_cast<uint16_t>(padding)).add(std::string(padding, 'Z'));
    Record local;
    local.add(uint32_t{0x04034b50}).add(uint16_t{0}).add(flags(size)).add(uint16_t{0}).add(uint32_t{0});
    local.add(uint32_t{0}).add(uint32_t{0}).add(uint32_t{0}).add(static_cast<uint16_t>(name.size()));
    local.add(static_cast<uint16_t>(extra.bytes().size())).add(name).add(extra.bytes());
    put(local.bytes());
  }

  void end(std::string_view name, uint64_t size, uint32_t crc32) {
    if (!has_checksums_) crc32 = 0;
    Record descriptor;
    descriptor.add(uint32_t{0x08074b50}).add(crc32);
    if (is_large_) {
      descriptor.add(size).add(size);
    } else {
      descriptor.add(small(size)).add(small(size));
    }
    if (size > 0) put(descriptor.bytes());
    Record extra;
    if (size >= kIn64) extra.add(size).add(size);
    if (begin_ >= kIn64) extra.add(begin_);
    const auto large = static_cast<uint16_t>(extra.bytes().size());
    lines_.add(uint32_t{0x02014b50}).add(uint16_t{0}).add(uint16_t{0}).add(flags(size)).add(uint16_t{0});
    lines_.add(uint32_t{0}).add(crc32).add(small(size)).add(small(size)).add(static_cast<uint16_t>(name.size()));
    lines_.add(static_cast<uint16_t>(large > 0 ? large + 4 : 0)).add(uint16_t{0}).add(uint16_t{0}).add(uint16_t{0});
    lines_.add(uint32_t{0}).add(small(begin_)).add(name);
    if (large > 0) lines_.add(uint16_t{1}).add(large).add(extra.bytes());
    ++count_;
  }

  void put(std::string_view bytes) {
    sink_.write(bytes.data(), bytes.size());
    position_ += bytes.size();
  }

  storage::ByteSink& sink_;
  bool has_checksums_;
  uint64_t position_ = 0;
  uint64_t begin_ = 0;
  bool is_large_ = false;
  uint64_t count_ = 0;
  Record lines_;
};

/// How an archiver packs an entry anew.
struct ArchiveEntry {
  std::string name{};
  std::string data{};
  std::string deflated{};       ///< empty: stored as it is
  bool has_descriptor = false;  ///< checksum and sizes follow the data, as when zip writes into a pipe
  bool is_wide = false;         ///< … and the sizes have 64 bits
  std::string extra{};          ///< fields of the local header
};

/// Data as one deflate block that packs nothing.
inline std::string deflate_block(std::string_view data) {
  const auto size = static_cast<uint16_t>(data.size());
  return Record().add(uint8_t{1}).add(size).add(static_cast<uint16_t>(~size)).add(data).bytes();
}

/// The entries one after the other, listed in the directory from the last to the first when `is_reversed`.
inline std::string archive(const std::vector<ArchiveEntry>& entries, bool is_reversed = false,
                           std::string_view comment = "") {
  constexpr uint32_t kTime = 0x5d761ab3;
  constexpr std::string_view kUnixTime("UT\5\0\3time", 9);
  std::string file;
  std::vector<std::string> lines;
  for (const auto& entry : entries) {
    const auto crc32 = pt::crc32(entry.data.data(), entry.data.size());
    const auto& stored = entry.deflated.empty() ? entry.data : entry.deflated;
    const auto method = static_cast<uint16_t>(entry.deflated.empty() ? 0 : 8);
    const auto flags = static_cast<uint16_t>(entry.has_descriptor ? 8 : 0);
    const auto stored_size = static_cast<uint32_t>(stored.size()), size = static_cast<uint32_t>(entry.data.size());
    Record line;
    line.add(uint32_t{0x02014b50}).add(uint16_t{0x031e}).add(uint16_t{20}).add(flags).add(method).add(kTime).add(crc32);
    line.add(stored_size).add(size).add(static_cast<uint16_t>(entry.name.size())).add(uint16_t{9}).add(uint16_t{0});
    line.add(uint16_t{0}).add(static_cast<uint16_t>(lines.size() % 2)).add(uint32_t{0x81a40000});
    line.add(static_cast<uint32_t>(file.size())).add(entry.name).add(kUnixTime);
    lines.push_back(line.bytes());
    Record local;
    const auto early = [&](uint32_t value) { return entry.has_descriptor ? 0 : value; };
    local.add(uint32_t{0x04034b50}).add(uint16_t{20}).add(flags).add(method).add(kTime).add(early(crc32));
    local.add(early(stored_size)).add(early(size)).add(static_cast<uint16_t>(entry.name.size()));
    local.add(static_cast<uint16_t>(entry.extra.size())).add(entry.name).add(entry.extra).add(stored);
    if (entry.has_descriptor) local.add(uint32_t{0x08074b50}).add(crc32);
    if (entry.has_descriptor && entry.is_wide) local.add(uint64_t{stored_size}).add(uint64_t{size});
    if (entry.has_descriptor && !entry.is_wide) local.add(stored_size).add(size);
    file += local.bytes();
  }
  if (is_reversed) std::reverse(lines.begin(), lines.end());
  const auto directory = static_cast<uint32_t>(file.size());
  for (const auto& line : lines) file += line;
  const auto count = static_cast<uint16_t>(lines.size());
  Record end;
  end.add(uint32_t{0x06054b50}).add(uint32_t{0}).add(count).add(count);
  end.add(static_cast<uint32_t>(file.size() - directory)).add(directory);
  end.add(static_cast<uint16_t>(comment.size())).add(comment);
  return file + end.bytes();
}

}  // namespace ddp::test

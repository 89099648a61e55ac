#include "checkpoint/pt/zip_writer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "checkpoint/pt/crc32.h"
#include "checkpoint/pt/zip_records.h"

namespace ddp::pt {
namespace {

constexpr uint16_t kVersion = 45;  // the first with zip64

// Appends little-endian fields.
class Record {
 public:
  template <typename Integer>
  Record& add(Integer value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Record& add_text(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

uint32_t small(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, zip::kValueInZip64));
}

// What local header and directory have in common.
void add_common(Record& record, uint16_t flags, uint64_t size, uint32_t crc32) {
  record.add(kVersion).add(flags).add(uint16_t{0}).add(uint32_t{0}).add(crc32);
  record.add(small(size)).add(small(size));
}

// Passes bytes on, counts them, and computes their checksum.
class CheckedSink : public storage::ByteSink {
 public:
  explicit CheckedSink(storage::ByteSink& sink) : sink_(sink) {}

  void write(const void* data, size_t size) override {
    // Checksum and copy touch each piece while it is in the processor's cache.
    constexpr size_t kPiece = size_t{1} << 18;
    const auto* bytes = static_cast<const char*>(data);
    while (size > 0) {
      const auto piece = std::min(size, kPiece);
      crc32_ = pt::crc32(bytes, piece, crc32_);
      sink_.write(bytes, piece);
      size_ += piece;
      bytes += piece;
      size -= piece;
    }
  }

  uint64_t size() const { return size_; }
  uint32_t crc32() const { return crc32_; }

 private:
  storage::ByteSink& sink_;
  uint64_t size_ = 0;
  uint32_t crc32_ = 0;
};

}  // namespace

void ZipWriter::add(std::string_view name, std::string_view data) {
  add(name, data.size(), crc32(data.data(), data.size()),
      [&](storage::ByteSink& sink) { sink.write(data.data(), data.size()); });
}

void ZipWriter::add(std::string_view name, uint64_t size, uint32_t crc32,
                    const std::function<void(storage::ByteSink& sink)>& writer) {
  begin({.name = std::string(name), .size = size, .crc32 = crc32, .position = position_, .flags = zip::kFlagUtf8});
  writer(sink_);
  position_ += size;
}

void ZipWriter::add_stream(std::string_view name, uint64_t size,
                           const std::function<void(storage::ByteSink& sink)>& writer) {
  begin(
      {.name = std::string(name), .size = size, .position = position_, .flags = zip::kFlagUtf8 | zip::kFlagDescriptor});
  CheckedSink sink(sink_);
  writer(sink);
  if (sink.size() != size) {
    throw std::length_error("an entry of " + std::to_string(size) + " bytes got " + std::to_string(sink.size()));
  }
  position_ += size;
  entries_.back().crc32 = sink.crc32();
  Record descriptor;
  descriptor.add(zip::kDescriptorSignature).add(sink.crc32());
  if (size >= zip::kValueInZip64) {
    descriptor.add(size).add(size);
  } else {
    descriptor.add(small(size)).add(small(size));
  }
  put(descriptor.bytes());
}

// Writes the header, from which on the data begins.
void ZipWriter::begin(Entry entry) {
  const bool is_known = (entry.flags & zip::kFlagDescriptor) == 0;
  const uint64_t size = is_known ? entry.size : 0;
  Record extra;
  if (entry.size >= zip::kValueInZip64) extra.add(zip::kZip64Extra).add(uint16_t{16}).add(size).add(size);
  const auto unpadded = position_ + zip::kLocalBytes + entry.name.size() + extra.bytes().size() + 4;
  const auto padding = static_cast<uint16_t>((zip::kAlignment - unpadded % zip::kAlignment) % zip::kAlignment);
  extra.add(zip::kPaddingExtra).add(padding).add_text(std::string(padding, zip::kPaddingByte));

  Record local;
  local.add(zip::kLocalSignature);
  add_common(local, entry.flags, size, entry.crc32);
  local.add(static_cast<uint16_t>(entry.name.size())).add(static_cast<uint16_t>(extra.bytes().size()));
  local.add_text(entry.name).add_text(extra.bytes());
  entries_.push_back(std::move(entry));
  put(local.bytes());
}

void ZipWriter::finish() {
  const auto directory = position_;
  for (const auto& entry : entries_) {
    Record extra;
    if (entry.size >= zip::kValueInZip64) extra.add(entry.size).add(entry.size);
    if (entry.position >= zip::kValueInZip64) extra.add(entry.position);
    const auto large = static_cast<uint16_t>(extra.bytes().size());
    Record line;
    line.add(zip::kCentralSignature).add(uint16_t{0});
    add_common(line, entry.flags, entry.size, entry.crc32);
    line.add(static_cast<uint16_t>(entry.name.size())).add(static_cast<uint16_t>(large > 0 ? large + 4 : 0));
    line.add(uint16_t{0}).add(uint16_t{0}).add(uint16_t{0}).add(uint32_t{0}).add(small(entry.position));
    line.add_text(entry.name);
    if (large > 0) line.add(zip::kZip64Extra).add(large).add_text(extra.bytes());
    put(line.bytes());
  }
  const auto size = position_ - directory;
  const uint64_t count = entries_.size();
  const auto small_count = static_cast<uint16_t>(std::min<uint64_t>(count, 0xffff));
  Record end;
  if (position_ >= zip::kValueInZip64 || count >= 0xffff) {
    end.add(zip::kEnd64Signature).add(uint64_t{zip::kEnd64Bytes - 12}).add(kVersion).add(kVersion).add(uint64_t{0});
    end.add(count).add(count).add(size).add(directory);
    end.add(zip::kLocator64Signature).add(uint32_t{0}).add(position_).add(uint32_t{1});
  }
  end.add(zip::kEndSignature).add(uint32_t{0}).add(small_count).add(small_count).add(small(size));
  end.add(small(directory)).add(uint16_t{0});
  put(end.bytes());
}

void ZipWriter::put(const std::string& bytes) {
  sink_.write(bytes.data(), bytes.size());
  position_ += bytes.size();
}

}  // namespace ddp::pt

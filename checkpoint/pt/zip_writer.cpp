#include "checkpoint/pt/zip_writer.h"

#include <algorithm>

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
  return static_cast<uint32_t>(std::min<uint64_t>(value, zip::kIn64));
}

// What local header and directory have in common.
void add_common(Record& record, uint64_t size, uint32_t crc32) {
  record.add(kVersion).add(zip::kFlagUtf8).add(uint16_t{0}).add(uint32_t{0}).add(crc32);
  record.add(small(size)).add(small(size));
}

}  // namespace

void ZipWriter::add(std::string_view name, std::string_view data) {
  add(name, data.size(), crc32(data.data(), data.size()),
      [&](storage::ByteSink& sink) { sink.write(data.data(), data.size()); });
}

void ZipWriter::add(std::string_view name, uint64_t size, uint32_t crc32,
                    const std::function<void(storage::ByteSink& sink)>& writer) {
  Record extra;
  if (size >= zip::kIn64) extra.add(zip::kZip64Extra).add(uint16_t{16}).add(size).add(size);
  const auto unpadded = position_ + zip::kLocalBytes + name.size() + extra.bytes().size() + 4;
  const auto padding = static_cast<uint16_t>((zip::kAlignment - unpadded % zip::kAlignment) % zip::kAlignment);
  extra.add(zip::kPaddingExtra).add(padding).add_text(std::string(padding, zip::kPaddingByte));

  Record local;
  local.add(zip::kLocalSignature);
  add_common(local, size, crc32);
  local.add(static_cast<uint16_t>(name.size())).add(static_cast<uint16_t>(extra.bytes().size()));
  local.add_text(name).add_text(extra.bytes());
  entries_.push_back({.name = std::string(name), .size = size, .crc32 = crc32, .position = position_});
  put(local.bytes());
  writer(sink_);
  position_ += size;
}

void ZipWriter::finish() {
  const auto directory = position_;
  for (const auto& entry : entries_) {
    Record extra;
    if (entry.size >= zip::kIn64) extra.add(entry.size).add(entry.size);
    if (entry.position >= zip::kIn64) extra.add(entry.position);
    const auto large = static_cast<uint16_t>(extra.bytes().size());
    Record line;
    line.add(zip::kCentralSignature).add(uint16_t{0});
    add_common(line, entry.size, entry.crc32);
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
  if (position_ >= zip::kIn64 || count >= 0xffff) {
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

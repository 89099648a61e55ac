// Writes zip files that torch.load reads: uncompressed entries whose data begins at multiples of 64 bytes, zip64 where
// sizes ask for it. No LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/storage/byte_sink.h"

namespace ddp::pt {

class ZipWriter {
 public:
  explicit ZipWriter(storage::ByteSink& sink) : sink_(sink) {}

  /// Adds an entry.
  void add(std::string_view name, std::string_view data);

  /// Adds an entry of `size` bytes with this CRC-32, which `writer` then puts into the sink in pieces.
  void add(std::string_view name, uint64_t size, uint32_t crc32,
           const std::function<void(storage::ByteSink& sink)>& writer);

  /// The same where the CRC-32 is not known before: it follows the data, as torch.save has it. Throws std::length_error
  /// when `writer` puts in more or fewer bytes.
  void add_stream(std::string_view name, uint64_t size, const std::function<void(storage::ByteSink& sink)>& writer);

  /// Writes the directory. Nothing may be added afterwards.
  void finish();

 private:
  struct Entry {
    std::string name;
    uint64_t size = 0;
    uint32_t crc32 = 0;
    uint64_t position = 0;
    uint16_t flags = 0;
  };

  void begin(Entry entry);
  void put(const std::string& bytes);

  storage::ByteSink& sink_;
  std::vector<Entry> entries_;
  uint64_t position_ = 0;
};

}  // namespace ddp::pt

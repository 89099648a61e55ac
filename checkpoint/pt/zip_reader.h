// Reads zip files of the kind that torch.save writes: uncompressed entries one after the other, each with a CRC. Every
// byte of the file must be accounted for, so that damage anywhere is noticed. Works on bytes in memory (a mapped file);
// no LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/pt/format_error.h"

namespace ddp::pt {

struct ZipEntry {
  std::string_view name;
  std::string_view data;
  uint32_t crc32 = 0;
  bool is_compressed = false;  ///< source code in an archive of LibTorch's: neither read nor verified
};

/// Refers to `file`, which must outlive it.
class ZipReader {
 public:
  /// Reads the directory. Throws FormatError for compressed (but code), encrypted, repeated, overlapping or oddly named
  /// entries, for bytes that belong to nothing, and for fields that contradict each other. Checksums are not yet
  /// compared.
  explicit ZipReader(std::string_view file);

  const std::vector<ZipEntry>& entries() const { return entries_; }

  /// The entry `name`, or null.
  const ZipEntry* find(std::string_view name) const;

  /// Compares every entry's checksum, but for compressed ones. Throws FormatError naming the first that differs.
  void verify() const;

 private:
  std::vector<ZipEntry> entries_;
};

}  // namespace ddp::pt

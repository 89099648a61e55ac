// Reads zip files of the kind that torch.load takes: as torch.save writes them, or repacked by zip or Python's
// zipfile. Every byte of the file must be accounted for, so that damage anywhere is noticed. Works on bytes in memory
// (a mapped file); no LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/pt/format_error.h"

namespace ddp::pt {

struct ZipEntry {
  std::string_view name{};
  std::string_view data{};  ///< as it is in the file
  uint64_t size = 0;        ///< bytes when unpacked
  uint32_t crc32 = 0;       ///< of the unpacked bytes; 0 when the writer computed none
  bool is_deflated = false;
};

/// Refers to `file`, which must outlive it.
class ZipReader {
 public:
  /// Reads the directory. Throws FormatError for encrypted, repeated, overlapping or oddly named entries, for bytes
  /// that belong to nothing, and for fields that contradict each other. Entries of torch.save are held to what it
  /// writes; those of other programs may have any order, alignment and extra fields, and be deflated. Checksums are not
  /// yet compared.
  explicit ZipReader(std::string_view file);

  const std::vector<ZipEntry>& entries() const { return entries_; }

  /// The entry `name`, or null.
  const ZipEntry* find(std::string_view name) const;

  /// Compares every entry's checksum, where it has one (torch.serialization.set_crc32_options(False) writes none).
  /// Throws FormatError naming the first that differs.
  void verify() const;

  /// Whether every entry that is not empty has a checksum.
  bool has_checksums() const;

 private:
  std::vector<ZipEntry> entries_;
};

/// The unpacked bytes of a deflated entry, which was verified. Throws FormatError when they are damaged.
std::string unpack(const ZipEntry& entry);

}  // namespace ddp::pt

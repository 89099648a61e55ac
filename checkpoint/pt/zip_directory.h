// The directory at the end of a zip file: what it says about each entry, before the entries are looked at. No LibTorch.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/pt/zip_fields.h"

namespace ddp::pt::zip {

/// What directory and local header of an entry both say.
struct EntryHeader {
  uint16_t version = 0;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint32_t time = 0;
  uint32_t crc32 = 0;
  uint64_t stored = 0;  ///< bytes in the file
  uint64_t size = 0;    ///< bytes when unpacked
};

/// Reads those fields as they are, without zip64. Throws FormatError for encrypted and patched entries.
EntryHeader read_entry_header(Fields& fields);

struct DirectoryEntry {
  EntryHeader header{};  ///< with the sizes from zip64
  std::string_view name{};
  uint64_t position = 0;  ///< of the local header
  uint16_t made_by = 0;
  uint32_t attributes = 0;
  bool is_bare = false;  ///< no comment, no marks, no extra field but a zip64 that is needed: as torch.save writes it
};

struct Directory {
  std::vector<DirectoryEntry> entries{};  ///< in its own order
  uint64_t position = 0;                  ///< where the entries end
  bool is_torch_end = true;               ///< its zip64 end, if any, is one that torch.save or this project writes
};

/// Throws FormatError when `file` has none, something follows it that is no comment, fields contradict each other, or
/// an entry is encrypted, or packed in another way than torch.load reads.
Directory read_directory(std::string_view file);

}  // namespace ddp::pt::zip

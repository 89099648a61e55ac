// The directory at the end of a zip file: what it says about each entry, before the entries are looked at. No LibTorch.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/pt/format_error.h"

namespace ddp::pt::zip {

/// Reads from the front of `bytes`, whose end is checked. Throws FormatError saying that the zip file's `what` is
/// damaged.
class Fields {
 public:
  Fields(std::string_view bytes, const char* what) : bytes_(bytes), what_(what) {}

  template <typename Integer>
  Integer get() {
    Integer value{};
    const auto piece = take(sizeof(Integer));
    std::memcpy(&value, piece.data(), sizeof(Integer));
    return value;
  }

  template <typename Integer>
  void expect(Integer value) {
    if (get<Integer>() != value) fail();
  }

  std::string_view take(uint64_t size) {
    if (size > bytes_.size()) fail();
    const auto piece = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return piece;
  }

  bool is_empty() const { return bytes_.empty(); }

  [[noreturn]] void fail() const { throw FormatError(std::string("the zip file's ") + what_ + " is damaged"); }

 private:
  std::string_view bytes_;
  const char* what_;
};

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

/// The end of a file.
struct Tail {
  std::string_view bytes{};
  uint64_t begin = 0;  ///< where they begin in the file
};

/// Where the directory begins in the file that ends with `tail`, which must have the end records: at least its last
/// 98 bytes and any comment. Throws FormatError as read_directory() does.
uint64_t directory_position(const Tail& tail);

/// The directory of the file that ends with `tail`, which must reach back to directory_position(). The names refer to
/// `tail`.
Directory read_directory(const Tail& tail);

/// Throws FormatError when `file` has none, something follows it that is not a comment, fields contradict each other,
/// or an entry is encrypted, or packed in another way than torch.load reads.
Directory read_directory(std::string_view file);

}  // namespace ddp::pt::zip

// Zip files of arrays (.npz): their members and contents, and a writer. Reference: PKWARE's APPNOTE 6.3.10. No
// LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/formats/open_file.h"

namespace ddp {

/// A file in a zip file.
struct ZipMember {
  std::string name{};
  std::string_view packed{};  ///< its bytes as they are in the zip file
  uint64_t size = 0;          ///< bytes when unpacked
  uint32_t crc32 = 0;         ///< of the unpacked bytes
  bool is_deflated = false;
};

/// Returns the members of a zip file whose bytes are `file`, sorted by name. Throws DataError for damage, encryption,
/// other compression than deflate, repeated names, and a member that would be decompressed to more than
/// check_unpacked_size() allows.
std::vector<ZipMember> read_zip_directory(std::string_view file, const std::filesystem::path& path);

/// Decompresses a member from its beginning. The compressed bytes must outlive it.
class ZipMemberReader {
 public:
  ZipMemberReader(const ZipMember& member, const std::filesystem::path& path);
  ~ZipMemberReader();
  ZipMemberReader(const ZipMemberReader&) = delete;
  ZipMemberReader& operator=(const ZipMemberReader&) = delete;

  /// Fills all of `bytes`. Throws DataError where the member ends before, or is damaged.
  void read(std::span<uint8_t> bytes);
  /// Throws DataError unless all bytes were read and their checksum is the member's.
  void finish();

 private:
  struct Inflate;

  const ZipMember& member_;
  const std::filesystem::path& path_;
  std::unique_ptr<Inflate> inflate_;
  uint64_t position_ = 0;  // of the unpacked bytes
  uint32_t crc32_ = 0;
};

/// Writes a zip file member by member. The same content gives the same bytes, because members have no modification
/// time.
class ZipWriter {
 public:
  explicit ZipWriter(ReplacedFile& file) : file_(file) {}

  /// Appends a member whose bytes are these pieces, one after the other.
  void add(const std::string& name, const std::vector<std::string_view>& pieces, bool deflate);
  /// Writes the directory. Nothing may be added afterwards.
  void finish();

 private:
  struct Entry {
    std::string name{};
    uint64_t size = 0;
    uint64_t packed = 0;
    uint64_t position = 0;
    uint32_t crc32 = 0;
    bool is_deflated = false;
  };

  std::string header_of(const Entry& entry, bool in_directory) const;

  ReplacedFile& file_;
  std::vector<Entry> entries_;
};

}  // namespace ddp

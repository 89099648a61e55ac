// Zip files of arrays (.npz): reads their members and contents, and writes them. Reference: APPNOTE 6.3.10 of PKWARE.
// Does not use LibTorch.
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
  std::string_view packed{};  ///< its bytes as stored in the zip file
  uint64_t size = 0;          ///< the number of bytes after decompression
  uint32_t crc32 = 0;         ///< of the decompressed bytes
  bool is_deflated = false;
};

/// Returns the members of a zip file with the bytes `file`, sorted by name. Throws DataError for damage, encryption,
/// compression other than deflate, repeated names, and members that would be decompressed to more than
/// check_unpacked_size() allows.
std::vector<ZipMember> read_zip_directory(std::string_view file, const std::filesystem::path& path);

/// Decompresses a member from its beginning. The compressed bytes must outlive this object.
class ZipMemberReader {
 public:
  ZipMemberReader(const ZipMember& member, const std::filesystem::path& path);
  ~ZipMemberReader();
  ZipMemberReader(const ZipMemberReader&) = delete;
  ZipMemberReader& operator=(const ZipMemberReader&) = delete;

  /// Fills all of `bytes`. Throws DataError if the member is damaged or has fewer bytes.
  void read(std::span<uint8_t> bytes);
  /// Throws DataError unless all bytes were read and their checksum is that of the member.
  void finish();

 private:
  struct Inflate;

  const ZipMember& member_;
  const std::filesystem::path& path_;
  std::unique_ptr<Inflate> inflate_;
  uint64_t position_ = 0;  // in the decompressed bytes
  uint32_t crc32_ = 0;
};

/// Writes a zip file member by member. Equal contents give equal bytes, because members have no modification time.
class ZipWriter {
 public:
  explicit ZipWriter(ReplacedFile& file) : file_(file) {}

  /// Appends a member that consists of these pieces in order.
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

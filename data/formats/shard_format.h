// Samples in a tar archive: files that follow each other under one key, as PyPI's webdataset groups them; and the index
// of an archive. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/formats/tar_format.h"

namespace ddp {

/// The patterns' addresses. See expand_shards().
std::vector<std::string> expand_braces(std::string_view pattern);

/// Key and suffix of a file's name, as webdataset's base_plus_ext(); std::nullopt without a suffix, and for metadata.
std::optional<std::pair<std::string, std::string>> key_and_suffix(const std::string& name);

/// Samples of an archive, one after the other.
class ShardReader {
 public:
  struct File {
    std::string suffix{};
    std::vector<uint8_t> content{};
  };
  struct Sample {
    std::string key{};
    uint64_t header = 0;  ///< where the first header of its first file begins
    std::vector<File> files{};
  };

  /// Throws what TarReader throws.
  ShardReader(const std::string& url, uint64_t most_file_bytes) : tar_(url, most_file_bytes), url_(url) {}

  /// The next sample, its files' content only `with_content`; nothing at the end. Throws DataError for damage and for
  /// two files of one suffix, and after the last sample for an archive without an end.
  std::optional<Sample> next(bool with_content);
  /// Goes to a sample's first header. False where the archive has no positions.
  bool seek(uint64_t header);

 private:
  TarReader tar_;
  std::string url_;
  std::optional<TarMember> ahead_;  // the first file of the next sample
  bool has_ended_ = false;
};

/// Where the samples of an archive begin.
struct ShardIndex {
  uint64_t archive_bytes = 0;
  std::vector<uint64_t> headers{};
};

/// The index's place beside an archive.
std::filesystem::path index_path(const std::filesystem::path& archive);
/// The index of a local archive, or std::nullopt without one. Throws DataError for a damaged one, and for one of
/// another archive.
std::optional<ShardIndex> read_shard_index(const std::filesystem::path& archive);
/// What read_shard_index() reads.
ShardIndex parse_shard_index(std::string_view text, const std::filesystem::path& path);
/// Writes it. Throws DataError.
void write_shard_index(const std::filesystem::path& archive, const ShardIndex& index);

}  // namespace ddp

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

/// Returns the addresses of a pattern. See expand_shards().
std::vector<std::string> expand_braces(std::string_view pattern);

/// Key and suffix of a file's name, as webdataset's base_plus_ext(); std::nullopt without a suffix, and for metadata.
std::optional<std::pair<std::string, std::string>> key_and_suffix(const std::string& name);

/// Reads the samples of an archive in order.
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

  /// Returns the next sample, with the content of its files if `with_content` is set; nothing at the end. Throws
  /// DataError for damage and for two files with the same suffix, and after the last sample if the archive has no end.
  std::optional<Sample> next(bool with_content);
  /// Moves to a sample's first header. Returns false if the archive has no positions.
  bool seek(uint64_t header);

 private:
  TarReader tar_;
  std::string url_;
  std::optional<TarMember> ahead_;  // the first file of the next sample
  bool has_ended_ = false;
};

/// The positions at which the samples of an archive begin.
struct ShardIndex {
  uint64_t archive_bytes = 0;
  std::vector<uint64_t> headers{};
};

/// The path of the index of an archive.
std::filesystem::path index_path(const std::filesystem::path& archive);
/// Reads the index of a local archive; std::nullopt without one. Throws DataError for a damaged index, and for an index
/// of another archive.
std::optional<ShardIndex> read_shard_index(const std::filesystem::path& archive);
/// Parses what read_shard_index() reads.
ShardIndex parse_shard_index(std::string_view text, const std::filesystem::path& path);
/// Writes it. Throws DataError.
void write_shard_index(const std::filesystem::path& archive, const ShardIndex& index);

}  // namespace ddp

// The samples in a tar archive: consecutive files with the same key, grouped as by webdataset from PyPI. Also the index
// of an archive. Does not use LibTorch.
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

/// Returns the addresses that a pattern stands for. See expand_shards().
std::vector<std::string> expand_braces(std::string_view pattern);

/// Returns the key and suffix of a file name, like base_plus_ext() of webdataset; std::nullopt for names without a
/// suffix, and for metadata.
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
    uint64_t header = 0;  ///< the position of the first header of its first file
    std::vector<File> files{};
  };

  /// Throws the same exceptions as TarReader.
  ShardReader(const std::string& url, uint64_t most_file_bytes) : tar_(url, most_file_bytes), url_(url) {}

  /// Returns the next sample, including the content of its files if `with_content` is set; nullopt at the end. Throws
  /// DataError if the archive is damaged, if two files have the same suffix, and after the last sample if the archive
  /// has no end marker.
  std::optional<Sample> next(bool with_content);
  /// Moves to the first header of a sample. Returns false if the archive cannot be positioned.
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

/// Returns the path of the index of an archive.
std::filesystem::path index_path(const std::filesystem::path& archive);
/// Reads the index of a local archive; std::nullopt if the archive has no index. Throws DataError if the index is
/// damaged or belongs to another archive.
std::optional<ShardIndex> read_shard_index(const std::filesystem::path& archive);
/// Parses the text that read_shard_index() reads.
ShardIndex parse_shard_index(std::string_view text, const std::filesystem::path& path);
/// Writes the index of an archive. Throws DataError.
void write_shard_index(const std::filesystem::path& archive, const ShardIndex& index);

}  // namespace ddp

// The checksums of a checkpoint's files by blocks, so that a rank can read a part of a file and still compare every
// byte that it takes. Format only; no LibTorch and no I/O.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::shards {

/// The file of a checkpoint folder that holds them. The manifest has its checksum.
inline constexpr const char* kBlockChecksumsFile = "block-checksums.txt";

/// CRC32C of each block of storage::kBlockBytes, by file.
using BlockChecksums = std::map<std::string, std::vector<uint32_t>>;

/// A line of text for each file, in order. Throws std::invalid_argument for what cannot be a file's name.
std::string format_block_checksums(const BlockChecksums& checksums);

/// Throws std::invalid_argument for text that format_block_checksums() does not make.
BlockChecksums parse_block_checksums(std::string_view text);

}  // namespace ddp::shards

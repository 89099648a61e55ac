#include "checkpoint/shards/block_checksums.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "checkpoint/storage/durable_file.h"
#include "checkpoint/storage/manifest.h"

namespace ddp::shards {
namespace {

constexpr size_t kBlockDigits = 8;

std::string head() {
  return "ddprun block checksums 1: CRC32C of each " + std::to_string(storage::kBlockBytes) + " bytes\n";
}

[[noreturn]] void fail(const std::string& what) {
  throw std::invalid_argument(std::string(kBlockChecksumsFile) + " " + what);
}

// The hexadecimal number in `digits`. This program writes lower case only, but std::from_chars accepts upper case too.
uint32_t parse_block(std::string_view digits) {
  uint32_t block = 0;
  const auto* end = digits.data() + digits.size();
  const auto is_large = [](char c) { return c >= 'A' && c <= 'F'; };
  if (std::from_chars(digits.data(), end, block, 16).ptr != end || std::ranges::any_of(digits, is_large)) {
    fail("has a checksum that is not a number");
  }
  return block;
}

}  // namespace

std::string format_block_checksums(const BlockChecksums& checksums) {
  static constexpr char kHexadecimal[] = "0123456789abcdef";
  auto text = head();
  for (const auto& [file, blocks] : checksums) {
    if (!storage::is_file_name(file))
      throw std::invalid_argument("'" + file + "' cannot be the name of a checkpoint's file");
    text.append(file).append(" ");
    for (const auto block : blocks) {
      for (int shift = 28; shift >= 0; shift -= 4) text += kHexadecimal[(block >> shift) & 15];
    }
    text += '\n';
  }
  return text;
}

BlockChecksums parse_block_checksums(std::string_view text) {
  const auto first_line = head();
  if (!text.starts_with(first_line)) fail("does not begin as this program writes it");
  text.remove_prefix(first_line.size());
  BlockChecksums checksums;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const auto space = text.find(' ');
    if (end == std::string_view::npos || space >= end || (end - space - 1) % kBlockDigits != 0)
      fail("has a broken line");
    const auto file = text.substr(0, space);
    auto digits = text.substr(space + 1, end - space - 1);
    text.remove_prefix(end + 1);
    if (!storage::is_file_name(file)) fail("names no file");
    if (!checksums.empty() && checksums.rbegin()->first >= file) {
      fail(checksums.rbegin()->first == file ? "names " + std::string(file) + " twice" : "has files in another order");
    }
    auto& blocks = checksums[std::string(file)];
    blocks.reserve(digits.size() / kBlockDigits);
    for (; !digits.empty(); digits.remove_prefix(kBlockDigits))
      blocks.push_back(parse_block(digits.substr(0, kBlockDigits)));
  }
  return checksums;
}

}  // namespace ddp::shards

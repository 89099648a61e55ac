#include "data/formats/shard_format.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>

#include <ddprun/data/byte_source.h>

#include "data/formats/open_file.h"

namespace ddp {
namespace {

constexpr std::string_view kIndexTitle = "ddprun-shard-index 1";
constexpr uint64_t kMaxShardIndexBytes = uint64_t{1} << 30;

/// Whether webdataset ignores this file: its name is "__name__", or it lies in a folder with such a name.
bool is_metadata(std::string_view name) {
  const auto first = name.substr(0, name.find('/'));
  return first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
}

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

std::string one_line(std::string text) {
  for (char& letter : text) {
    if (letter >= 0 && letter < ' ') letter = '?';
  }
  return text;
}

uint64_t take_number(std::string_view& text, char separator, const std::filesystem::path& path) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  if (error != std::errc() || end == text.end() || *end != separator) {
    throw DataError(path, "expected the index of a shard, got something else: make it again with index_shard()");
  }
  text.remove_prefix(static_cast<size_t>(end - text.begin()) + 1);
  return value;
}

}  // namespace

std::optional<std::pair<std::string, std::string>> key_and_suffix(const std::string& name) {
  if (is_metadata(name)) return std::nullopt;
  const auto slash = name.rfind('/');
  const size_t base = slash == std::string::npos ? 0 : slash + 1;
  const auto dot = name.find('.', base);
  if (dot == std::string::npos || dot == 0) return std::nullopt;
  if (dot == base) {
    // If the base name begins with a dot, the expression in base_plus_ext() uses the folder as the key, but only if the
    // folder contains no dot.
    const auto before = slash == 0 ? std::string::npos : name.rfind('/', slash - 1);
    const size_t folder = before == std::string::npos ? 0 : before + 1;
    if (name.substr(folder, slash - folder).find('.') != std::string::npos) return std::nullopt;
  }
  return std::pair(name.substr(0, dot), lower_case(name.substr(dot + 1)));
}

std::optional<ShardReader::Sample> ShardReader::next(bool with_content) {
  std::optional<Sample> sample;
  std::set<std::string> suffixes;
  while (!has_ended_) {
    if (!ahead_) ahead_ = tar_.next();
    if (!ahead_) {
      has_ended_ = true;
      break;
    }
    const auto name = key_and_suffix(ahead_->name);
    if (!name) {
      ahead_.reset();
      continue;
    }
    const auto& [key, suffix] = *name;
    if (sample && sample->key != key) return sample;  // the first file of the next sample stays in ahead_
    if (!sample) sample = Sample{.key = key, .header = ahead_->header};
    if (!suffixes.insert(suffix).second) {
      throw DataError(url_, "sample '" + one_line(key) + "' has two files with the suffix '" + one_line(suffix) + "'");
    }
    tar_.require_size();  // so that samples are the same with and without their content
    sample->files.push_back({suffix, with_content ? tar_.read() : std::vector<uint8_t>()});
    ahead_.reset();
  }
  if (!sample) tar_.check_end();
  return sample;
}

bool ShardReader::seek(uint64_t header) {
  if (!tar_.seek(header)) return false;
  ahead_.reset();
  has_ended_ = false;
  return true;
}

std::filesystem::path index_path(const std::filesystem::path& archive) {
  return std::filesystem::path(archive) += ".index";
}

ShardIndex parse_shard_index(std::string_view text, const std::filesystem::path& path) {
  if (!text.starts_with(kIndexTitle)) take_number(text = "", '\n', path);
  text.remove_prefix(kIndexTitle.size());
  if (!text.starts_with(' ')) take_number(text = "", '\n', path);
  text.remove_prefix(1);
  ShardIndex index{.archive_bytes = take_number(text, ' ', path)};
  const uint64_t count = take_number(text, '\n', path);
  while (!text.empty()) {
    const uint64_t header = take_number(text, '\n', path);
    const bool is_ascending = index.headers.empty() || header > index.headers.back();
    if (!is_ascending || header >= index.archive_bytes || header % 512 != 0) take_number(text = "", '\n', path);
    index.headers.push_back(header);
  }
  if (index.headers.size() != count) take_number(text = "", '\n', path);
  return index;
}

std::optional<ShardIndex> read_shard_index(const std::filesystem::path& archive) {
  const auto path = index_path(archive);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  ShardIndex index = parse_shard_index(read_small_file(path, kMaxShardIndexBytes), path);
  const OpenFile file(archive);
  if (file.size() != index.archive_bytes) {
    throw DataError(path, "is the index of an archive of " + std::to_string(index.archive_bytes) + " bytes, but " +
                              archive.filename().string() + " has " + std::to_string(file.size()) +
                              ": remove it, or make it again with index_shard()");
  }
  return index;
}

void write_shard_index(const std::filesystem::path& archive, const ShardIndex& index) {
  std::string text = std::string(kIndexTitle) + " " + std::to_string(index.archive_bytes) + " " +
                     std::to_string(index.headers.size()) + "\n";
  for (const uint64_t header : index.headers) text += std::to_string(header) + "\n";
  ReplacedFile file(index_path(archive));
  file.write(text);
  file.commit();
}

}  // namespace ddp

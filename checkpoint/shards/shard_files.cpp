#include "checkpoint/shards/shard_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "base/joined.h"
#include "checkpoint/core/safetensors_dtypes.h"
#include "checkpoint/shards/block_file.h"
#include "checkpoint/shards/lost_content.h"
#include "checkpoint/shards/sharding_info.h"
#include "checkpoint/storage/damage.h"
#include "checkpoint/storage/durable_file.h"

namespace ddp::shards {
namespace {

using safetensors::quote_name;

constexpr std::string_view kEnding = ".safetensors";
constexpr int kDigits = 5;
constexpr int kMaxRanks = 99999;

std::optional<int> number(std::string_view digits) {
  int value = 0;
  const auto* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value);
  if (digits.size() != kDigits || result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return std::string("[").append(detail::joined(shape)).append("]");
}

// A header and where its data begin.
struct FileHeader {
  safetensors::Header header{};
  uint64_t data_begin = 0;
};

FileHeader read_header(const BlockFile& file, ReadBuffer& buffer) {
  std::string text;
  const auto append = [&](uint64_t, std::string_view bytes) { text += bytes; };
  const auto first_read = std::min(file.size(), storage::kBlockBytes);
  file.read(0, first_read, buffer, append);
  const auto length = safetensors::parse_header_length(text, file.size());
  const auto data_begin = safetensors::kLengthBytes + length;
  if (data_begin > first_read) file.read(first_read, data_begin, buffer, append);
  const auto json = std::string_view(text).substr(safetensors::kLengthBytes, length);
  return {.header = safetensors::parse_header(json, file.size() - data_begin), .data_begin = data_begin};
}

// "; " and the fault in a header whose bytes do not match their checksum; empty if the header can be read.
std::string header_fault(storage::FileSystem& file_system, const std::filesystem::path& path) {
  try {
    ReadBuffer buffer;
    read_header(BlockFile(file_system, path, nullptr), buffer);
    return "";
  } catch (const safetensors::FormatError& error) {
    return std::string("; ") + error.what();
  } catch (const std::exception&) {
    return "";
  }
}

// Adds the tensors of one file after another to a catalog.
class CatalogBuilder {
 public:
  TensorCatalog take() { return std::move(catalog_); }

  void add(const std::filesystem::path& path, FileHeader file) {
    title_ = path.string() + owner(path.filename().string());
    auto& [header, data_begin] = file;
    const auto number = static_cast<uint32_t>(catalog_.files.size());
    catalog_.files.push_back(path);
    const auto places = extract_places(header.metadata);
    add_metadata(header.metadata, places.has_value());
    for (auto& entry : header.tensors) {
      Chunk chunk{.box = whole(entry.shape),
                  .file = number,
                  .begin = data_begin + entry.begin,
                  .size = entry.end - entry.begin};
      add_chunk(entry, std::move(chunk), places ? place(entry, *places) : ChunkPlace{});
    }
  }

 private:
  using Places = std::unordered_map<std::string, ChunkPlace>;

  [[noreturn]] void fail(const std::string& what) const { throw storage::DamagedCheckpoint(title_ + " " + what); }

  std::optional<Places> extract_places(Metadata& metadata) const {
    const auto text = metadata.extract(kShardingInfo);
    if (text.empty()) return std::nullopt;
    try {
      return parse_sharding_info(text.mapped());
    } catch (const std::invalid_argument&) {
      fail(std::string("has metadata ") + kShardingInfo + " that are not a JSON object");
    }
  }

  void add_metadata(Metadata& metadata, bool is_shard) {
    metadata.erase("DCP_VERSION");
    metadata.erase("format");
    for (auto& [key, value] : metadata) {
      const auto [found, is_new] = catalog_.metadata.try_emplace(key, std::move(value));
      if (!is_new && is_shard && found->second != value) {
        fail("has other metadata " + quote_name(key) + " than a file of another rank");
      }
    }
  }

  ChunkPlace place(const safetensors::TensorEntry& entry, const Places& places) const {
    const auto found = places.find(entry.name);
    const auto dimensions = entry.shape.size();
    if (found == places.end() || !found->second.is_valid || !found->second.offsets ||
        found->second.offsets->size() != dimensions ||
        (found->second.shape && found->second.shape->size() != dimensions)) {
      fail(std::string("does not say in ") + kShardingInfo + " where the chunk " + shape_text(entry.shape) +
           " of the tensor " + quote_name(entry.name) + " lies");
    }
    return found->second;
  }

  void add_chunk(const safetensors::TensorEntry& entry, Chunk chunk, const ChunkPlace& place) {
    auto shape = entry.shape;  // the least shape that the tensor may have
    if (place.offsets) chunk.box.offsets = *place.offsets;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (__builtin_add_overflow(chunk.box.offsets[i], entry.shape[i], &shape[i])) {
        fail("has a chunk of the tensor " + quote_name(entry.name) + " beyond the largest size");
      }
    }
    if (place.shape) shape = *place.shape;
    const std::string dtype(safetensors::python_name(entry.dtype));
    const auto [found, is_new] =
        catalog_.tensors.try_emplace(entry.name, CatalogTensor{.dtype = dtype, .shape = shape});
    auto& tensor = found->second;
    const bool is_known = stated_.contains(&tensor);  // whether a file has stated its shape
    if (tensor.dtype != dtype || tensor.shape.size() != shape.size() ||
        (place.shape && is_known && tensor.shape != shape)) {
      fail("holds a part of the tensor " + quote_name(entry.name) + " as " + dtype + " of shape " + shape_text(shape) +
           ", but another file as " + tensor.dtype + " of " + shape_text(tensor.shape));
    }
    if (place.shape && !is_known) {
      tensor.shape = shape;
      stated_.insert(&tensor);
    } else if (!is_known) {
      for (size_t i = 0; i < shape.size(); ++i) tensor.shape[i] = std::max(tensor.shape[i], shape[i]);
    }
    tensor.chunks.push_back(std::move(chunk));
  }

  TensorCatalog catalog_;
  std::unordered_set<const CatalogTensor*> stated_;  // tensors whose shapes a file states
  std::string title_;                                // of the file that is being added
};

constexpr size_t kMaxNamedFiles = 8;

// The files that the names in `files` imply but that are not in `files`. At most one more than the message names.
std::vector<std::string> missing_files(const std::filesystem::path& folder, const std::vector<std::string>& files) {
  struct Ranks {
    int count = 0;
    std::string file{};  // the file whose name has this count
    std::set<int> found{};
  };
  std::map<std::string, Ranks> parts;
  for (const auto& file : files) {
    const auto name = parse_shard_file_name(file);
    if (!name) continue;
    auto& ranks = parts[name->part];
    if (ranks.found.empty()) ranks = {.count = name->ranks, .file = file};
    if (ranks.count != name->ranks) {
      storage::throw_damaged(folder, file + " belongs to a checkpoint of " + std::to_string(name->ranks) +
                                         " ranks, but " + ranks.file + " to one of " + std::to_string(ranks.count) +
                                         " ranks: they belong to different checkpoints");
    }
    ranks.found.insert(name->rank);
  }
  std::vector<std::string> missing;
  for (const auto& [part, ranks] : parts) {
    // The number in a name may be arbitrarily large.
    for (int rank = 0; rank < ranks.count && missing.size() <= kMaxNamedFiles; ++rank) {
      if (!ranks.found.contains(rank)) missing.push_back(shard_file_name(part, rank, ranks.count));
    }
  }
  return missing;
}

// "a (rank 0's part), b (rank 1's part) and others".
std::string list_of(std::vector<std::string> files) {
  const bool has_more = files.size() > kMaxNamedFiles;
  if (has_more) files.resize(kMaxNamedFiles);
  const auto title = [](const std::string& file) { return file + owner(file); };
  return detail::joined(files, ", ", title) + (has_more ? " and others" : "");
}

// Also of a name whose rank is not below the number of ranks.
std::optional<ShardFileName> parse_any_rank(std::string_view name) {
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kLength = 1 + kDigits + kOf.size() + kDigits;
  if (!name.ends_with(kEnding)) return std::nullopt;
  name.remove_suffix(kEnding.size());
  if (name.size() <= kLength) return std::nullopt;
  const auto stem = name.substr(0, name.size() - kLength);
  const auto rest = name.substr(stem.size());
  const auto index = number(rest.substr(1, kDigits));
  const auto ranks = number(rest.substr(rest.size() - kDigits));
  if (rest.front() != '-' || rest.substr(1 + kDigits, kOf.size()) != kOf || !index || !ranks) return std::nullopt;
  return ShardFileName{.part = std::string(stem).append(kEnding), .rank = *index - 1, .ranks = *ranks};
}

bool is_of_a_rank(const ShardFileName& name) {
  return name.rank >= 0 && name.rank < name.ranks;
}

}  // namespace

std::string shard_file_name(const std::string& part, int rank, int ranks) {
  if (!part.ends_with(kEnding) || part.size() == kEnding.size() || rank < 0 || rank >= ranks) {
    throw std::invalid_argument("there is no file of rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                                " for '" + part + "'");
  }
  if (ranks > kMaxRanks) {
    throw std::invalid_argument("a checkpoint has parts of at most " + std::to_string(kMaxRanks) + " ranks");
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "-%05d-of-%05d", rank + 1, ranks);
  return part.substr(0, part.size() - kEnding.size()) + text.data() + std::string(kEnding);
}

std::optional<ShardFileName> parse_shard_file_name(std::string_view name) {
  auto parsed = parse_any_rank(name);
  return parsed && is_of_a_rank(*parsed) ? parsed : std::nullopt;
}

bool is_of_no_rank(std::string_view name) {
  const auto parsed = parse_any_rank(name);
  return parsed && !is_of_a_rank(*parsed);
}

std::map<std::string, std::vector<std::string>> shard_files_by_part(const std::set<std::string>& files) {
  std::map<std::string, std::vector<std::string>> parts;
  for (const auto& file : files) {
    if (const auto name = parse_shard_file_name(file)) parts[name->part].push_back(file);
  }
  return parts;
}

safetensors::Header shard_header(const std::vector<ChunkEntry>& chunks, const Metadata& metadata) {
  safetensors::Header header;
  header.metadata = metadata;
  std::vector<const ChunkEntry*> by_name;
  for (const auto& chunk : chunks) {
    const auto dtype = safetensors::dtype_of_python_name(chunk.dtype);
    if (!dtype) {
      throw std::invalid_argument("tensor " + quote_name(chunk.name) +
                                  " cannot be stored in a safetensors file: the format has no dtype for " +
                                  chunk.dtype);
    }
    header.tensors.push_back({.name = chunk.name, .dtype = *dtype, .shape = chunk.box.sizes});
    by_name.push_back(&chunk);
  }
  std::ranges::sort(by_name, {}, &ChunkEntry::name);
  const auto twice = std::ranges::adjacent_find(by_name, {}, &ChunkEntry::name);
  if (twice != by_name.end()) {
    throw std::invalid_argument("tensor " + quote_name((*twice)->name) +
                                " cannot be stored in a safetensors file: it has two chunks there");
  }
  std::string info;
  for (const auto* chunk : by_name) append_place(info, chunk->name, chunk->box.offsets, chunk->shape);
  end_sharding_info(info);
  header.metadata["format"] = "pt";
  header.metadata["DCP_VERSION"] = "1.0";
  header.metadata[kShardingInfo] = std::move(info);
  safetensors::assign_ranges(header.tensors);
  return header;
}

TensorCatalog read_shard_headers(storage::FileSystem& file_system, const std::filesystem::path& folder,
                                 const std::vector<std::string>& files, const BlockChecksums& checksums) {
  CatalogBuilder builder;
  ReadBuffer buffer;
  auto missing_names = missing_files(folder, files);
  for (const auto& name : files) {
    const auto path = folder / name;
    const auto blocks = checksums.find(name);
    try {
      const BlockFile file(file_system, path, blocks == checksums.end() ? nullptr : &blocks->second);
      builder.add(path, read_header(file, buffer));
    } catch (const DamagedBytes& error) {
      std::error_code ignored;
      const LostBytes bytes{.files = files,
                            .file = name,
                            .begin = error.begin(),
                            .end = error.end(),
                            .written = std::filesystem::file_size(path, ignored)};
      throw storage::DamagedCheckpoint(error.what() + owner(name) + lost_bytes_text(file_system, folder, bytes) +
                                       header_fault(file_system, path));
    } catch (const safetensors::FormatError& error) {
      throw storage::DamagedCheckpoint(path.string() + owner(name) + " is not valid: " + error.what());
    } catch (const std::system_error& error) {
      if (error.code() != std::errc::no_such_file_or_directory) storage::throw_read_failure(folder, error);
      missing_names.push_back(name);
    }
  }
  auto catalog = builder.take();
  auto missing = list_of(missing_names);
  try {
    check(catalog);
  } catch (const CatalogError& error) {
    if (missing.empty()) storage::throw_damaged(folder, error.what());
    missing += std::string("; ") + error.what();
    storage::throw_damaged(folder, "files are missing: " + missing);
  }
  if (!missing.empty()) {
    missing += (missing_names.size() == 1 ? "; it held " : "; the first of them held ") +
               content_of_lost(file_system, folder, files, missing_names.front());
  }
  if (!missing.empty()) storage::throw_damaged(folder, "files are missing: " + missing);
  return catalog;
}

}  // namespace ddp::shards

#include "checkpoint/shards/shard_files.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <stdexcept>

#include "base/joined.h"
#include "checkpoint/core/safetensors_dtypes.h"
#include "checkpoint/core/shallow_json.h"
#include "checkpoint/shards/block_file.h"
#include "checkpoint/storage/damage.h"

namespace ddp::shards {
namespace {

using nlohmann::json;
using safetensors::quote_name;

constexpr std::string_view kEnding = ".safetensors";
constexpr const char* kOffsets = "saved_offsets";
constexpr const char* kShape = "tensor_shape";  // Python's reader takes the largest end of a chunk instead
constexpr int kDigits = 5;
constexpr int kMostRanks = 99999;

std::optional<int> number(std::string_view digits) {
  int value = 0;
  const auto* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value);
  if (digits.size() != kDigits || result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw storage::DamagedCheckpoint(path.string() + " " + what);
}

// "rank 2's part", of a file that a rank has written.
std::string owner(const std::string& file) {
  const auto name = parse_shard_file_name(file);
  return name ? " (rank " + std::to_string(name->rank) + "'s part)" : "";
}

safetensors::Header read_header(const BlockFile& file, ReadBuffer& buffer, uint64_t& data_begin) {
  std::string text;
  const auto append = [&](uint64_t, std::string_view bytes) { text += bytes; };
  file.read(0, std::min(file.size(), safetensors::kLengthBytes), buffer, append);
  const auto length = safetensors::parse_header_length(text, file.size());
  data_begin = safetensors::kLengthBytes + length;
  text.clear();
  file.read(safetensors::kLengthBytes, data_begin, buffer, append);
  return safetensors::parse_header(text, file.size() - data_begin);
}

// Adds the tensors of one file.
class HeaderReader {
 public:
  HeaderReader(TensorCatalog& catalog, const std::filesystem::path& path) : catalog_(catalog), path_(path) {}

  void add(safetensors::Header header, uint64_t data_begin) {
    const auto file = static_cast<uint32_t>(catalog_.files.size());
    catalog_.files.push_back(path_);
    const auto info = sharding_info(header.metadata);
    header.metadata.erase(kShardingInfo);
    header.metadata.erase("DCP_VERSION");
    header.metadata.erase("format");
    catalog_.metadata.merge(header.metadata);
    for (const auto& entry : header.tensors) {
      Chunk chunk{
          .box = whole(entry.shape), .file = file, .begin = data_begin + entry.begin, .size = entry.end - entry.begin};
      auto shape = entry.shape;
      if (!info.is_null()) place(entry, info, chunk.box, shape);
      add_chunk(entry, std::move(chunk), shape);
    }
  }

 private:
  json sharding_info(const Metadata& metadata) const {
    const auto found = metadata.find(kShardingInfo);
    if (found == metadata.end()) return nullptr;
    try {
      auto info = parse_shallow_json(found->second);
      if (info.is_object()) return info;
    } catch (const std::exception&) {
      // The same as text that is no object.
    }
    fail(path_, std::string("has metadata ") + kShardingInfo + " that are no JSON object");
  }

  std::vector<int64_t> numbers(const safetensors::TensorEntry& entry, const json& place, const char* key) const {
    const auto found = place.find(key);
    const auto is_size = [](const json& each) {
      return each.is_number_unsigned() && each.get<uint64_t>() <= uint64_t{INT64_MAX};
    };
    if (found == place.end() || !found->is_array() || found->size() != entry.shape.size() ||
        !std::ranges::all_of(*found, is_size)) {
      fail(path_, std::string("has no ") + key + " for each dimension of the tensor " + quote_name(entry.name));
    }
    return found->get<std::vector<int64_t>>();
  }

  void place(const safetensors::TensorEntry& entry, const json& info, Box& box, std::vector<int64_t>& shape) const {
    const auto found = info.find(entry.name);
    if (found == info.end() || !found->is_object()) {
      fail(path_,
           std::string("does not say in ") + kShardingInfo + " where the tensor " + quote_name(entry.name) + " lies");
    }
    box.offsets = numbers(entry, *found, kOffsets);
    for (size_t i = 0; i < shape.size(); ++i) {
      if (__builtin_add_overflow(box.offsets[i], entry.shape[i], &shape[i])) {
        fail(path_, "has a chunk of the tensor " + quote_name(entry.name) + " that ends nowhere");
      }
    }
    if (found->contains(kShape)) shape = numbers(entry, *found, kShape);
  }

  void add_chunk(const safetensors::TensorEntry& entry, Chunk chunk, const std::vector<int64_t>& shape) {
    const std::string dtype(safetensors::python_name(entry.dtype));
    auto [found, is_new] = catalog_.tensors.try_emplace(entry.name, CatalogTensor{.dtype = dtype, .shape = shape});
    auto& tensor = found->second;
    if (!is_new && (tensor.dtype != dtype || tensor.shape.size() != shape.size())) {
      fail(path_, "holds a part of the tensor " + quote_name(entry.name) + " as " + dtype + " of " +
                      std::to_string(shape.size()) + " dimensions, but another file as " + tensor.dtype + " of " +
                      std::to_string(tensor.shape.size()));
    }
    for (size_t i = 0; i < shape.size(); ++i) tensor.shape[i] = std::max(tensor.shape[i], shape[i]);
    tensor.chunks.push_back(std::move(chunk));
  }

  TensorCatalog& catalog_;
  const std::filesystem::path& path_;
};

}  // namespace

std::string shard_file_name(const std::string& part, int rank, int ranks) {
  if (ranks > kMostRanks) {
    throw std::invalid_argument("a checkpoint has parts of at most " + std::to_string(kMostRanks) + " ranks");
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "-%05d-of-%05d", rank + 1, ranks);
  return part.substr(0, part.size() - kEnding.size()) + text.data() + std::string(kEnding);
}

std::optional<ShardFileName> parse_shard_file_name(std::string_view name) {
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
  if (*index < 1 || *index > *ranks) return std::nullopt;
  return ShardFileName{.part = std::string(stem).append(kEnding), .rank = *index - 1, .ranks = *ranks};
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
  auto info = json::object();
  for (const auto& chunk : chunks) {
    const auto dtype = safetensors::dtype_of_python_name(chunk.dtype);
    if (!dtype) {
      throw std::invalid_argument("tensor " + quote_name(chunk.name) +
                                  " cannot be stored in a safetensors file: the format has no dtype for " +
                                  chunk.dtype);
    }
    header.tensors.push_back({.name = chunk.name, .dtype = *dtype, .shape = chunk.box.sizes});
    info[chunk.name] = {{kOffsets, chunk.box.offsets}, {kShape, chunk.shape}};
  }
  header.metadata["format"] = "pt";
  header.metadata["DCP_VERSION"] = "1.0";
  header.metadata[kShardingInfo] = info.dump();
  safetensors::assign_ranges(header.tensors);
  return header;
}

TensorCatalog read_shard_headers(storage::FileSystem& file_system, const std::filesystem::path& folder,
                                 const std::vector<std::string>& files, const BlockChecksums& checksums) {
  TensorCatalog catalog;
  ReadBuffer buffer;
  std::string missing;
  for (const auto& name : files) {
    const auto path = folder / name;
    const auto blocks = checksums.find(name);
    try {
      const BlockFile file(file_system, path, blocks == checksums.end() ? nullptr : &blocks->second);
      uint64_t data_begin = 0;
      auto header = read_header(file, buffer, data_begin);
      HeaderReader(catalog, path).add(std::move(header), data_begin);
    } catch (const safetensors::FormatError& error) {
      fail(path, "is not valid" + owner(name) + ": " + error.what());
    } catch (const std::system_error& error) {
      if (error.code() != std::errc::no_such_file_or_directory) storage::throw_read_failure(folder, error);
      detail::append_item(missing, name + owner(name));
    }
  }
  try {
    check(catalog);
  } catch (const CatalogError& error) {
    if (missing.empty()) throw storage::DamagedCheckpoint(folder.string() + ": " + error.what());
    missing += std::string("; ") + error.what();
  }
  if (!missing.empty()) storage::throw_damaged(folder, "files are missing: " + missing);
  return catalog;
}

}  // namespace ddp::shards

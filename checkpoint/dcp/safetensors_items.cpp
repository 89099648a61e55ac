#include "checkpoint/dcp/safetensors_items.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>

#include "checkpoint/core/shallow_json.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/format_error.h"

namespace ddp::dcp {
namespace {

using nlohmann::json;
using pt::FormatError;

// The key of a header's metadata under which DCP says where in its tensor a chunk begins.
constexpr const char* kOffsets = "DCP_SHARDING_INFO";

}  // namespace

bool SafetensorsItems::is_one(const Entry& entry, const StoredChunk& chunk) {
  const auto* dtype = pt::dtype_by_name(entry.dtype);
  if (dtype == nullptr) return false;
  uint64_t bytes = dtype->bytes;
  for (const auto size : chunk.box.sizes) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) return false;
  }
  return bytes == chunk.item.size;
}

SafetensorsItems::Range SafetensorsItems::find(storage::FileSystem& file_system, const std::filesystem::path& path,
                                               const Entry& entry, const StoredChunk& chunk) {
  const auto& file = open(file_system, path, chunk.item);
  const auto found = file.tensors.find(entry.key);
  if (found == file.tensors.end()) throw FormatError("it is not in the safetensors header there");
  const auto& tensor = found->second;
  const auto offsets = file.offsets.find(entry.key);
  const bool is_right = tensor.shape == chunk.box.sizes && tensor.end - tensor.begin == chunk.item.size &&
                        offsets != file.offsets.end() && offsets->second == chunk.box.offsets;
  if (!is_right) throw FormatError("the safetensors header there has another part of it than the metadata says");
  return {.begin = file.data_begin + tensor.begin, .size = tensor.end - tensor.begin};
}

const SafetensorsItems::File& SafetensorsItems::open(storage::FileSystem& file_system,
                                                     const std::filesystem::path& path, const StoredItem& item) {
  const auto [known, is_new] = files_.try_emplace({item.file, item.begin});
  if (!is_new) return known->second;
  auto& result = known->second;
  const auto file = file_system.open(path);
  const auto bytes = file_system.size(file, path) - item.begin;
  try {
    std::string first(std::min<uint64_t>(bytes, safetensors::kLengthBytes), '\0');
    file_system.read(file, first.data(), first.size(), item.begin, path);
    const auto length = safetensors::parse_header_length(first, bytes);
    std::string text(length, '\0');
    file_system.read(file, text.data(), text.size(), item.begin + safetensors::kLengthBytes, path);
    result.data_begin = item.begin + safetensors::kLengthBytes + length;
    auto header = safetensors::parse_header(text, bytes - safetensors::kLengthBytes - length);
    for (auto& tensor : header.tensors) result.tensors.emplace(tensor.name, tensor);
    const auto places = parse_shallow_json(header.metadata[kOffsets]);
    for (const auto& [name, place] : places.items()) {
      result.offsets.emplace(name, place.at("saved_offsets").get<std::vector<int64_t>>());
    }
  } catch (const json::exception&) {
    throw FormatError("its safetensors header does not say which part of it is there");
  } catch (const std::invalid_argument&) {
    throw FormatError("its safetensors header does not say which part of it is there");
  } catch (const safetensors::FormatError& error) {
    throw FormatError(std::string("its item is neither an archive of torch.save() nor a safetensors file: ") +
                      error.what());
  }
  return result;
}

}  // namespace ddp::dcp

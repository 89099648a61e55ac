#include "checkpoint/shards/lost_content.h"

#include <nlohmann/json.hpp>

#include <exception>
#include <map>
#include <optional>
#include <utility>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/core/shallow_json.h"
#include "checkpoint/pt/state_dict.h"
#include "checkpoint/shards/block_file.h"
#include "checkpoint/shards/shard_files.h"

namespace ddp::shards {
namespace {

using safetensors::quote_name;

struct UnverifiedHeader {
  safetensors::Header header{};
  uint64_t data_begin = 0;
};

// The header of a file; nothing if it cannot be read. `written` is the size that the file had when it was written.
std::optional<UnverifiedHeader> header_of(storage::FileSystem& file_system, const std::filesystem::path& path,
                                          std::optional<uint64_t> written = std::nullopt) {
  try {
    ReadBuffer buffer;
    const BlockFile file(file_system, path, nullptr);
    const auto size = written.value_or(file.size());
    std::string text;
    const auto append = [&](uint64_t, std::string_view bytes) { text += bytes; };
    file.read(0, safetensors::kLengthBytes, buffer, append);
    const auto begin = safetensors::kLengthBytes + safetensors::parse_header_length(text, size);
    text.clear();
    file.read(safetensors::kLengthBytes, begin, buffer, append);
    return UnverifiedHeader{.header = safetensors::parse_header(text, size - begin), .data_begin = begin};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

uint64_t elements(const std::vector<int64_t>& shape) {
  uint64_t count = 1;
  for (const auto size : shape) count *= static_cast<uint64_t>(size);
  return count;
}

struct Counts {
  uint64_t found = 0;
  uint64_t asked = 0;
};

// The combined headers of the files that still exist.
struct OtherFiles {
  std::map<std::string, Counts> tensors{};
  std::string optimizer{};  // its groups as JSON

  void add(UnverifiedHeader file) {
    auto& metadata = file.header.metadata;
    if (const auto groups = metadata.find(pt::kOptimizerMetadata); groups != metadata.end()) optimizer = groups->second;
    const auto places = parse_sharding_info(metadata[kShardingInfo]);
    for (const auto& tensor : file.header.tensors) {
      auto& counts = tensors[tensor.name];
      counts.found += elements(tensor.shape);
      const auto place = places.find(tensor.name);
      if (place == places.end() || !place->second.shape) continue;
      counts.asked = elements({place->second.shape->begin(), place->second.shape->end()});
    }
  }

  // The first tensor of which elements are missing.
  const std::string* incomplete() const {
    for (const auto& [name, counts] : tensors) {
      if (counts.found < counts.asked) return &name;
    }
    return nullptr;
  }

  // The first parameter of the optimizer that has no state.
  std::optional<std::string> without_state() const {
    const auto groups = parse_shallow_json(optimizer);
    for (const auto& group : groups.at("param_groups")) {
      for (const auto& parameter : group.at("params")) {
        const auto prefix = "state." + parameter.get<std::string>() + ".";
        const auto next = tensors.lower_bound(prefix);
        if (next == tensors.end() || !next->first.starts_with(prefix)) return parameter.get<std::string>();
      }
    }
    return std::nullopt;
  }
};

std::string kind_of(const std::string& file) {
  constexpr std::string_view kMain = "optim.safetensors";
  constexpr std::string_view kOptimizerPrefix = "optim-";
  const auto name = parse_shard_file_name(file);
  if (!name || (name->part != kMain && !name->part.starts_with(kOptimizerPrefix))) return "tensors of the model";
  if (name->part == kMain) return "states of the optimizer";
  return "states of the optimizer " +
         quote_name(name->part.substr(kOptimizerPrefix.size(), name->part.rfind('.') - kOptimizerPrefix.size()));
}

}  // namespace

std::string owner(const std::string& file) {
  const auto name = parse_shard_file_name(file);
  return name && name->ranks > 1 ? " (rank " + std::to_string(name->rank) + "'s part)" : "";
}

std::string tensors_between(storage::FileSystem& file_system, const std::filesystem::path& folder,
                            const LostBytes& bytes) {
  const auto file = header_of(file_system, folder / bytes.file, bytes.written);
  if (!file) return "";
  const std::string* first = nullptr;
  for (const auto& tensor : file->header.tensors) {
    if (file->data_begin + tensor.end <= bytes.begin || file->data_begin + tensor.begin >= bytes.end) continue;
    if (first != nullptr) return quote_name(*first) + " and others";
    first = &tensor.name;
  }
  return first == nullptr ? "" : quote_name(*first);
}

std::string content_of_lost(storage::FileSystem& file_system, const std::filesystem::path& folder,
                            const std::vector<std::string>& files, const std::string& lost) {
  OtherFiles others;
  try {
    for (const auto& name : files) {
      if (name == lost) continue;
      if (auto header = header_of(file_system, folder / name)) others.add(std::move(*header));
    }
    if (const auto* name = others.incomplete()) return "a part of " + quote_name(*name);
    if (const auto name = others.without_state()) return "perhaps the state of " + quote_name(*name);
  } catch (const std::exception&) {
    // The kind of the part is enough then.
  }
  return kind_of(lost);
}

std::string lost_bytes_text(storage::FileSystem& file_system, const std::filesystem::path& folder,
                            const LostBytes& bytes) {
  const auto tensors = tensors_between(file_system, folder, bytes);
  if (!tensors.empty()) return "; they hold " + tensors;
  return "; the file holds " + content_of_lost(file_system, folder, bytes.files, bytes.file);
}

}  // namespace ddp::shards

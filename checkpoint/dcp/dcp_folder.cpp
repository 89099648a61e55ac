#include "checkpoint/dcp/dcp_folder.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>
#include <ddprun/detail/checkpoint/storage/mapped_file.h>

#include "checkpoint/core/shallow_json.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/dcp/optimizer_parts.h"
#include "checkpoint/dcp/run_layout.h"
#include "checkpoint/dcp/safetensors_items.h"
#include "checkpoint/dcp/value_items.h"
#include "checkpoint/dcp/value_tree.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/option_json.h"
#include "checkpoint/pt/run_state.h"
#include "checkpoint/pt/tensor_item.h"
#include "checkpoint/shards/box.h"

namespace ddp::dcp {
namespace {

using nlohmann::json;
using pt::Kind;
using safetensors::quote_name;

constexpr const char* kMetadataFile = ".metadata";

// A file such as "__3.metadata": with use_collectives=False, each rank writes one.
std::optional<std::string> metadata_of_rank(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator each(folder, error), end; !error && each != end; each.increment(error)) {
    const auto name = each->path().filename().string();
    if (name.starts_with("__") && name.ends_with(kMetadataFile)) return name;
  }
  return std::nullopt;
}

bool is_number(const std::vector<int64_t>& shape) {
  return std::ranges::all_of(shape, [](int64_t size) { return size == 1; });
}

class FolderReader {
 public:
  FolderReader(storage::FileSystem& file_system, const std::filesystem::path& folder)
      : file_system_(file_system), folder_(folder) {}

  shards::ShardedRun read() {
    read_metadata();
    check_files();
    places_ = find_places(metadata_);
    sort_entries();
    read_values();
    add_model();
    for (const auto& [name, entries] : optimizers_) add_optimizer(name, entries);
    add_rest();
    refuse_shared_bytes();
    return std::move(run_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(folder_.string() + " cannot be read as a folder of torch.distributed.checkpoint: " + what);
  }

  void read_metadata() {
    if (!std::filesystem::exists(folder_ / kMetadataFile)) {
      if (const auto name = metadata_of_rank(folder_)) {
        fail("it has " + *name +
             ", the metadata of a single rank, which is not supported: it does not say which parts other ranks have; "
             "save it in Python without no_dist and use_collectives=False");
      }
      fail("it has no .metadata: it was not written completely");
    }
    const auto path = folder_ / kMetadataFile;
    const auto file = file_system_.open(path);
    const auto size = file_system_.size(file, path);
    if (size > kMaxMetadataBytes) {
      fail("its .metadata has " + std::to_string(size) + " bytes, more than the allowed " +
           std::to_string(kMaxMetadataBytes));
    }
    std::string bytes(size, '\0');
    file_system_.read(file, bytes.data(), bytes.size(), 0, path);
    try {
      metadata_ = parse_metadata(bytes);
    } catch (const pt::FormatError& error) {
      fail(std::string("its .metadata: ") + error.what());
    }
  }

  // Every item lies in a file that is there.
  void check_files() {
    std::vector<std::optional<uint64_t>> sizes(metadata_.files.size());
    for (size_t i = 0; i < metadata_.files.size(); ++i) {
      std::error_code error;
      const auto path = folder_ / metadata_.files[i];
      if (!std::filesystem::exists(path, error)) continue;
      sizes[i] = file_system_.size(file_system_.open(path), path);
    }
    const auto check = [&](const Entry& entry, const StoredItem& item) {
      const auto size = sizes[item.file];
      const auto what = describe_file(metadata_.files[item.file]);
      if (!size) {
        fail("the file " + what + " is missing, which holds " + quote_name(entry.key) + " and perhaps more");
      }
      if (item.begin <= *size && item.size <= *size - item.begin) return;
      fail("the file " + what + " is too short: it has " + std::to_string(*size) + " bytes, but " +
           quote_name(entry.key) + " needs " + std::to_string(item.size) + " from byte " + std::to_string(item.begin) +
           " on");
    };
    for (const auto& entry : metadata_.entries) {
      if (!entry.is_tensor) check(entry, entry.item);
      for (const auto& chunk : entry.chunks) check(entry, chunk.item);
    }
  }

  void sort_entries() {
    constexpr size_t kMaxOptimizers = 64;
    for (size_t i = 0; i < places_.size(); ++i) {
      const auto& place = places_[i];
      if (place.role == Role::kGroup) optimizers_[place.optimizer].groups.push_back(i);
      if (place.role == Role::kState) optimizers_[place.optimizer].states.push_back(i);
    }
    if (optimizers_.size() > kMaxOptimizers) fail("it holds more than 64 optimizers");
    for (const auto& [name, entries] : optimizers_) {
      // The name becomes part of a file's name.
      const bool is_plain = name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
      if (!is_plain) fail("an optimizer has the name " + quote_name(name));
    }
  }

  bool is_wanted(size_t number) const {
    const auto& entry = metadata_.entries[number];
    const auto& place = places_[number];
    if (place.role == Role::kGroup) return true;
    if (place.role != Role::kOther) return false;
    const auto* key = key_at(entry.path, place.begin);
    const bool is_single = entry.path.size() == place.begin + 1;
    return key != nullptr && (is_single || pt::is_rest_key(*key));
  }

  // Plain values, as JSON of optimizers and as a tree of the rest.
  void read_values() {
    uint64_t bytes = 0;
    std::vector<size_t> numbers;
    for (size_t i = 0; i < metadata_.entries.size(); ++i) {
      const auto& entry = metadata_.entries[i];
      if (!is_wanted(i)) {
        if (places_[i].role == Role::kOther) skip_unknown(entry);
        if (places_[i].role == Role::kModel && !entry.is_tensor) run_.skipped.emplace(entry.key, "not a tensor");
      } else if (entry.is_tensor) {
        read_number(i);
      } else if (entry.item.size > kMaxValueBytes) {
        run_.skipped.emplace(entry.key, "a value of " + std::to_string(entry.item.size) + " bytes");
      } else {
        bytes += entry.item.size;
        numbers.push_back(i);
        ranges_.push_back({.file = entry.item.file,
                           .begin = entry.item.begin,
                           .end = entry.item.begin + entry.item.size,
                           .entry = &entry});
      }
    }
    pt::Budget budget((size_t{64} << 20) + bytes);
    tree_.emplace((size_t{64} << 20) + bytes, metadata_.entries.size());
    for (const auto i : numbers_in_tree_) {
      tree_->put_tensor(metadata_.entries[i].path, places_[i].begin, entry_as_tensor(i));
    }
    for_each_value(file_system_, folder_, metadata_, std::move(numbers), [&](size_t number, const pt::Value& value) {
      if (places_[number].role == Role::kGroup) {
        auto option = value.is(Kind::kNone) ? json() : pt::option_json(value, budget);
        options_[number] = option ? std::move(*option) : json(json::value_t::discarded);
      } else if (!tree_->put(metadata_.entries[number].path, places_[number].begin, value)) {
        run_.skipped.emplace(metadata_.entries[number].key, "a value whose place is taken by another value");
      }
    });
  }

  void skip_unknown(const Entry& entry) {
    run_.skipped.emplace(entry.key, entry.is_tensor ? "a tensor beside the model" : "a value under an unknown key");
  }

  // A number that was saved as a tensor: lr=torch.tensor(0.1).
  void read_number(size_t number) {
    if (places_[number].role == Role::kGroup) {
      const auto value = number_of(number);
      options_[number] = value ? json(*value) : json();
    } else {
      numbers_in_tree_.push_back(number);
    }
  }

  pt::TensorEntry entry_as_tensor(size_t number) const {
    const auto& entry = metadata_.entries[number];
    return {.storage = std::to_string(number), .dtype = entry.dtype, .sizes = entry.shape};
  }

  std::optional<double> number_of(size_t number) const {
    const auto& entry = metadata_.entries[number];
    if (!is_number(entry.shape) || entry.chunks.size() != 1 || pt::dtype_by_name(entry.dtype) == nullptr) {
      return std::nullopt;
    }
    const auto& item = entry.chunks.front().item;
    const auto path = folder_ / metadata_.files[item.file];
    std::string bytes;
    try {
      bytes = pt::read_tensor_item(
          file_system_, file_system_.open(path), path,
          {.begin = item.begin, .size = item.size, .dtype = entry.dtype, .sizes = entry.chunks.front().box.sizes});
    } catch (const pt::FormatError& error) {
      fail("the tensor " + quote_name(entry.key) + " in " + describe_file(metadata_.files[item.file]) + ": " +
           error.what());
    }
    return pt::number_in(entry.dtype, bytes);
  }

  void add_model() {
    shards::TensorCatalog catalog;
    for (size_t i = 0; i < places_.size(); ++i) {
      if (places_[i].role != Role::kModel) continue;
      add_tensor(i, flat_key(metadata_.entries[i].path, places_[i].begin), catalog);
    }
    if (!catalog.tensors.empty()) add_part("model.safetensors", std::move(catalog));
  }

  void add_optimizer(const std::string& name, const OptimizerEntries& entries) {
    if (entries.groups.empty()) {
      for (const auto number : entries.states) {
        run_.skipped.emplace(metadata_.entries[number].key, "an optimizer's state without its groups");
      }
      return;
    }
    shards::TensorCatalog catalog;
    try {
      auto parts = assemble_optimizer(metadata_, places_, entries, options_);
      run_.skipped.merge(parts.skipped);
      catalog.metadata.emplace(pt::kOptimizerMetadata, std::move(parts.groups));
      for (const auto& [tensor, number] : parts.tensors) add_tensor(number, tensor, catalog);
    } catch (const pt::FormatError& error) {
      fail(error.what());
    }
    add_part(name.empty() ? "optim.safetensors" : "optim-" + name + ".safetensors", std::move(catalog));
  }

  void add_tensor(size_t number, const std::string& name, shards::TensorCatalog& catalog) {
    const auto& entry = metadata_.entries[number];
    if (!entry.is_tensor) return;
    if (pt::dtype_by_name(entry.dtype) == nullptr) {
      run_.skipped.emplace(entry.key, "a tensor of the dtype torch." + entry.dtype);
      return;
    }
    shards::CatalogTensor tensor{.dtype = entry.dtype, .shape = entry.shape};
    for (const auto& stored : entry.chunks) {
      const auto& chunk = tensor.chunks.emplace_back(chunk_of(entry, stored));
      ranges_.push_back({.file = chunk.file, .begin = chunk.begin, .end = chunk.begin + chunk.size, .entry = &entry});
    }
    if (!catalog.tensors.emplace(name, std::move(tensor)).second) {
      fail("two tensors have the name " + quote_name(name));
    }
  }

  shards::Chunk chunk_of(const Entry& entry, const StoredChunk& stored) {
    shards::Chunk chunk{.box = stored.box,
                        .file = stored.item.file,
                        .begin = stored.item.begin,
                        .size = stored.item.size,
                        .form = shards::ChunkForm::kTorchSave};
    if (!safetensors_items_.is_one(entry, stored)) return chunk;
    try {
      const auto found = safetensors_items_.find(file_system_, folder_ / metadata_.files[chunk.file], entry, stored);
      chunk.begin = found.begin;
      chunk.size = found.size;
      chunk.form = shards::ChunkForm::kElements;
    } catch (const pt::FormatError& error) {
      fail("the tensor " + quote_name(entry.key) + " in " + describe_file(metadata_.files[chunk.file]) + ": " +
           error.what());
    }
    return chunk;
  }

  void add_part(const std::string& name, shards::TensorCatalog catalog) {
    for (const auto& file : metadata_.files) catalog.files.push_back(folder_ / file);
    try {
      shards::check(catalog);
    } catch (const shards::CatalogError& error) {
      fail(error.what());
    }
    run_.parts.emplace(name, std::move(catalog));
  }

  // Python writes each item separately, also those of tied weights. So two items at the same bytes are an error.
  void refuse_shared_bytes() {
    std::ranges::sort(ranges_, {}, [](const Range& range) { return std::tie(range.file, range.begin, range.end); });
    const Range* before = nullptr;
    for (const auto& range : ranges_) {
      if (range.begin == range.end) continue;
      if (before != nullptr && before->file == range.file && range.begin < before->end) {
        fail("its .metadata has " + quote_name(before->entry->key) + " and " + quote_name(range.entry->key) +
             " at the same bytes of " + describe_file(metadata_.files[range.file]) +
             ": one of the two places is wrong");
      }
      before = &range;
    }
  }

  void add_rest() {
    pt::RunState rest;
    try {
      pt::add_rest(
          tree_->root(),
          [&](const pt::TensorEntry& entry) { return number_of(static_cast<size_t>(std::stoull(entry.storage))); },
          rest);
      list_unread(rest);
    } catch (const pt::FormatError& error) {
      fail(error.what());
    }
    for (const auto& [name, text] : {std::pair("scaler.state", &rest.scaler),
                                     {"schedule.state", &rest.schedule},
                                     {"sampler.state", &rest.sampler}}) {
      if (!text->empty()) run_.texts.emplace(name, *text);
    }
    auto values = rest.values.empty() ? json::object() : parse_shallow_json(rest.values);
    if (rest.step) values["step"] = *rest.step;
    if (!values.empty()) run_.texts.emplace("trainer.json", values.dump());
  }

  // Lists the remaining values that are neither plain values nor parts that were found.
  void list_unread(const pt::RunState& rest) {
    for (const auto& [key, value] : pt::named_items(tree_->root())) {
      const bool is_plain = value->is(Kind::kBool) || value->is(Kind::kInt) || value->is(Kind::kFloat) ||
                            value->is(Kind::kText) || value->is(Kind::kNone);
      if (is_plain || (rest.read_keys.contains(key) && pt::is_rest_key(key))) continue;
      const bool is_list = value->is(Kind::kList) || value->is(Kind::kTuple);
      run_.skipped.emplace(key, value->is(Kind::kForeign)  ? value->text()
                                : value->is(Kind::kTensor) ? "a tensor beside the model"
                                : is_list                  ? "a list or tuple"
                                : value->is(Kind::kDict)   ? "a dict that was saved as one object"
                                                           : "not a plain value");
    }
  }

  // The bytes of an item that is read.
  struct Range {
    uint32_t file = 0;
    uint64_t begin = 0;
    uint64_t end = 0;
    const Entry* entry = nullptr;
  };

  storage::FileSystem& file_system_;
  const std::filesystem::path& folder_;
  FolderMetadata metadata_;
  std::vector<Range> ranges_;
  std::vector<Place> places_;
  std::map<std::string, OptimizerEntries> optimizers_;
  std::map<size_t, json> options_;
  std::vector<size_t> numbers_in_tree_;
  std::optional<ValueTree> tree_;
  SafetensorsItems safetensors_items_;
  shards::ShardedRun run_;
};

}  // namespace

bool is_dcp_folder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) &&
         (std::filesystem::is_regular_file(path / kMetadataFile, error) || metadata_of_rank(path));
}

shards::ShardedRun read_dcp_folder(storage::FileSystem& file_system, const std::filesystem::path& folder) {
  return FolderReader(file_system, folder).read();
}

}  // namespace ddp::dcp

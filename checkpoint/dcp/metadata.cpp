#include "checkpoint/dcp/metadata.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ddprun/checkpoint/safetensors_header.h>

#include "base/joined.h"
#include "checkpoint/dcp/metadata_globals.h"
#include "checkpoint/pt/value.h"

namespace ddp::dcp {
namespace {

using pt::FormatError;
using pt::Kind;
using pt::Value;
using safetensors::quote_name;

// LibTorch's own operators stop at 64 dimensions.
constexpr size_t kMaxDimensions = 64;

[[noreturn]] void throw_unexpected(const std::string& what) {
  throw FormatError("its metadata is damaged: " + what);
}

bool is_object(const Value& value, std::string_view type) {
  return value.is(Kind::kObject) && value.object().class_name == type;
}

// For an object's state, which is a dict with few items. Searching a large dict again and again would take too long.
const Value* find_in(const Value& state, std::string_view name) {
  constexpr size_t kMax = 64;
  return state.is(Kind::kDict) && state.items().size() <= kMax ? state.find(name) : nullptr;
}

// An attribute of one of DCP's objects; null where the attribute is missing or None.
const Value* attribute(const Value& object, std::string_view name) {
  const auto* found = find_in(object.object().state, name);
  return found != nullptr && !found->is(Kind::kNone) ? found : nullptr;
}

// A tuple of whole numbers, not negative; null for any other value.
const std::vector<Value>* as_size(const Value* value) {
  if (value == nullptr || (!value->is(Kind::kTuple) && !value->is(Kind::kList))) return nullptr;
  const auto& items = value->items();
  const auto fits = [](const Value& item) { return item.is(Kind::kInt) && item.integer() >= 0; };
  return items.size() <= kMaxDimensions && std::ranges::all_of(items, fits) ? &items : nullptr;
}

std::vector<int64_t> numbers(const std::vector<Value>& items) {
  std::vector<int64_t> result(items.size());
  std::ranges::transform(items, result.begin(), [](const Value& item) { return item.integer(); });
  return result;
}

// What a MetadataIndex says of an item: its name, and its offsets in a tensor (null for a value). Refers to the pickle.
struct Key {
  std::string_view name{};
  const std::vector<Value>* offsets = nullptr;

  bool operator==(const Key& other) const {
    if (name != other.name || (offsets == nullptr) != (other.offsets == nullptr)) return false;
    return offsets == nullptr ||
           std::ranges::equal(*offsets, *other.offsets,
                              [](const Value& left, const Value& right) { return left.integer() == right.integer(); });
  }
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    auto hash = std::hash<std::string_view>()(key.name);
    if (key.offsets == nullptr) return hash;
    for (const auto& offset : *key.offsets) {
      hash = hash * 1099511628211U + static_cast<size_t>(offset.integer()) + 1;
    }
    return hash;
  }
};

struct Located {
  StoredItem item{};
  bool is_used = false;
};

class Reader {
 public:
  Reader(const Value& root, size_t pickle_bytes) : root_(root), steps_left_(4096 + 4 * uint64_t{pickle_bytes}) {}

  FolderMetadata read() {
    if (!is_object(root_, kMetadataClass)) throw_unexpected("it is not an object of the class Metadata");
    read_places();
    const auto* entries = attribute(root_, "state_dict_metadata");
    if (entries == nullptr || !entries->is(Kind::kDict)) throw_unexpected("it has no state_dict_metadata");
    std::unordered_map<std::string_view, const Value*> by_key;  // of equal keys the last, as in Python
    std::vector<std::string_view> order;
    const auto& items = entries->items();
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      if (!items[i].is(Kind::kText)) throw_unexpected("a key of state_dict_metadata is not text");
      spend(items[i].text().size() / 16);
      if (by_key.insert_or_assign(items[i].text(), &items[i + 1]).second) order.push_back(items[i].text());
    }
    add_in_order_of_paths(by_key);
    for (const auto& key : order) {
      if (const auto left = by_key.find(key); left != by_key.end()) add(key, nullptr, *left->second);
    }
    return std::move(metadata_);
  }

 private:
  // A pickle can refer to one container or text many times.
  void spend(uint64_t steps) {
    steps += 1;
    if (steps > steps_left_) throw_unexpected("its containers name the same values too often");
    steps_left_ -= steps;
  }

  // planner_data has the keys in the order of the state dict; the items are in the order of the ranks that wrote them.
  void add_in_order_of_paths(std::unordered_map<std::string_view, const Value*>& by_key) {
    const auto* paths = attribute(root_, "planner_data");
    if (paths == nullptr || !paths->is(Kind::kDict)) return;
    const auto& items = paths->items();
    const Value* unknown = nullptr;
    std::unordered_set<std::string_view> added;
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      if (!items[i].is(Kind::kText)) throw_unexpected("a key of planner_data is not text");
      spend(items[i].text().size() / 16);
      const auto found = by_key.find(items[i].text());
      if (found == by_key.end()) {
        if (!added.contains(items[i].text())) unknown = &items[i];
        continue;
      }
      add(found->first, &items[i + 1], *found->second);
      added.insert(found->first);
      by_key.erase(found);
    }
    if (unknown == nullptr || by_key.empty()) return;
    throw_unexpected("planner_data has the path of " + quote_name(unknown->text()) +
                     ", which is not an item, but none of " + quote_name(by_key.begin()->first));
  }

  void read_places() {
    const auto* places = attribute(root_, "storage_data");
    if (places == nullptr || !places->is(Kind::kDict))
      throw_unexpected("it has no storage_data: it does not say where items are");
    const auto& items = places->items();
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      if (!is_object(items[i], kIndexClass) || !is_object(items[i + 1], kInfoClass)) {
        throw_unexpected("storage_data has something that is not a place of an item");
      }
      const auto* name = attribute(items[i], "fqn");
      if (name == nullptr || !name->is(Kind::kText)) throw_unexpected("an item has no name");
      const auto* offset = attribute(items[i], "offset");
      Key key{.name = name->text(), .offsets = as_size(offset)};
      if (offset != nullptr && key.offsets == nullptr)
        throw_unexpected("the offset of " + quote_name(key.name) + " is not a size");
      spend(key.name.size() / 16 + (key.offsets != nullptr ? key.offsets->size() : 0));
      places_[key].item = read_place(items[i + 1], key.name);
    }
  }

  StoredItem read_place(const Value& info, std::string_view name) {
    const auto* file = attribute(info, "relative_path");
    const auto* begin = attribute(info, "offset");
    const auto* size = attribute(info, "length");
    const auto is_count = [](const Value* value) {
      return value != nullptr && value->is(Kind::kInt) && value->integer() >= 0;
    };
    if (file == nullptr || !file->is(Kind::kText) || !is_count(begin) || !is_count(size)) {
      throw_unexpected("the place of " + quote_name(name) + " is incomplete");
    }
    refuse_transforms(info, name);
    return {.file = number_of(file->text()),
            .begin = static_cast<uint64_t>(begin->integer()),
            .size = static_cast<uint64_t>(size->integer())};
  }

  static void refuse_transforms(const Value& info, std::string_view name) {
    const auto* transforms = attribute(info, "transform_descriptors");
    if (transforms == nullptr) return;
    const bool is_list = transforms->is(Kind::kList) || transforms->is(Kind::kTuple);
    if (is_list && transforms->items().empty()) return;
    std::string names;
    for (size_t i = 0; is_list && i < transforms->items().size() && i < 8; ++i) {
      const auto& each = transforms->items()[i];
      detail::append_item(names, each.is(Kind::kText) ? quote_name(each.text()) : "?");
    }
    throw FormatError("the item " + quote_name(name) + " was written through the stream transform " + names +
                      ", which is not known here; load the folder in Python with its extension, and save it without");
  }

  uint32_t number_of(const std::string& file) {
    const auto known = numbers_.find(file);
    if (known != numbers_.end()) return known->second;
    const bool is_plain = !file.empty() && file != "." && file != ".." && file.find('/') == std::string::npos &&
                          file.find('\0') == std::string::npos && file.size() < 256;
    if (!is_plain) throw_unexpected("it names the file " + quote_name(file) + ", which is not a file of the folder");
    metadata_.files.push_back(file);
    return numbers_.emplace(file, static_cast<uint32_t>(metadata_.files.size() - 1)).first->second;
  }

  void add(std::string_view key, const Value* path, const Value& value) {
    Entry entry{.key = std::string(key)};
    if (path != nullptr) entry.path = read_path(*path, key);
    if (entry.path.empty()) entry.path = {entry.key};
    if (is_object(value, kBytesClass)) {
      const auto found = places_.find({.name = key});
      if (found == places_.end()) throw_unexpected("no file holds the value " + quote_name(key));
      entry.item = found->second.item;
    } else if (is_object(value, kTensorClass)) {
      read_tensor(value, entry);
    } else {
      throw_unexpected(quote_name(key) + " is neither a tensor nor a value");
    }
    metadata_.entries.push_back(std::move(entry));
  }

  // The parts of `key`, which Python joins with dots. Empty where the planner stored something other than paths: then
  // the value has no other name than the key.
  Path read_path(const Value& value, std::string_view key) {
    if (!value.is(Kind::kTuple) && !value.is(Kind::kList)) return {};
    Path path;
    size_t size = 0;
    bool is_path = true;
    for (const auto& part : value.items()) {
      spend(0);
      is_path = part.is(Kind::kText) || part.is(Kind::kInt);
      size += part.is(Kind::kText) ? part.text().size() + 1 : 2;
      is_path = is_path && size <= key.size() + 1;
      if (!is_path) break;
      if (part.is(Kind::kText)) {
        path.emplace_back(part.text());
      } else {
        path.emplace_back(part.integer());
      }
    }
    if (is_path && flat_key(path) == key) return path;
    throw_unexpected("the path of " + quote_name(key) + " in planner_data has other parts than its name" +
                     (path.empty() ? "" : ": it begins with " + quote_name(flat_key(path))));
  }

  void read_tensor(const Value& value, Entry& entry) {
    entry.is_tensor = true;
    entry.dtype = read_dtype(value, entry.key);
    const auto* shape = as_size(attribute(value, "size"));
    const auto* chunks = attribute(value, "chunks");
    if (shape == nullptr || chunks == nullptr || !chunks->is(Kind::kList)) {
      throw_unexpected("the tensor " + quote_name(entry.key) + " has no shape or no chunks");
    }
    entry.shape = numbers(*shape);
    for (const auto& chunk : chunks->items()) {
      spend(shape->size());
      read_chunk(chunk, entry);
    }
  }

  static std::string read_dtype(const Value& tensor, const std::string& key) {
    constexpr std::string_view kTorch = "torch.";
    const auto* properties = attribute(tensor, "properties");
    const Value* dtype = nullptr;
    if (properties != nullptr && is_object(*properties, kPropertiesClass)) {
      const auto& state = properties->object().state;  // a tuple; the first of its 5 or 6 items
      if (state.is(Kind::kTuple) && state.items().size() >= 5) dtype = &state.items()[0];
      if (dtype == nullptr) dtype = find_in(state, "dtype");
    }
    const bool is_global = dtype != nullptr && dtype->is(Kind::kGlobal) && dtype->text().starts_with(kTorch);
    auto name = is_global ? dtype->text().substr(kTorch.size()) : std::string();
    // The pickle has other names of torch, too: torch.Size, torch.distributed.….
    const auto is_of_dtype = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
    if (name.empty() || !std::ranges::all_of(name, is_of_dtype))
      throw_unexpected("the tensor " + quote_name(key) + " has no dtype");
    return name;
  }

  void read_chunk(const Value& value, Entry& entry) {
    const bool is_chunk = is_object(value, kChunkClass);
    const auto* offsets = is_chunk ? as_size(attribute(value, "offsets")) : nullptr;
    const auto* sizes = is_chunk ? as_size(attribute(value, "sizes")) : nullptr;
    if (offsets == nullptr || sizes == nullptr || offsets->size() != sizes->size()) {
      throw_unexpected("the tensor " + quote_name(entry.key) + " has a chunk without offsets or sizes");
    }
    // Empty shards of several ranks all have the same offsets and share one item.
    if (std::ranges::any_of(*sizes, [](const Value& size) { return size.integer() == 0; })) return;
    StoredChunk chunk{.box = {.offsets = numbers(*offsets), .sizes = numbers(*sizes)}};
    const auto found = places_.find({.name = entry.key, .offsets = offsets});
    if (found == places_.end()) {
      throw_unexpected("no file holds the chunk at [" + detail::joined(chunk.box.offsets) + "] of " +
                       quote_name(entry.key));
    }
    if (found->second.is_used) {
      throw_unexpected("two chunks of " + quote_name(entry.key) + " are at [" + detail::joined(chunk.box.offsets) +
                       "]");
    }
    found->second.is_used = true;
    chunk.item = found->second.item;
    entry.chunks.push_back(std::move(chunk));
  }

  const Value& root_;
  uint64_t steps_left_;
  FolderMetadata metadata_;
  std::unordered_map<std::string_view, uint32_t> numbers_;  // of files
  std::unordered_map<Key, Located, KeyHash> places_;
};

}  // namespace

FolderMetadata parse_metadata(std::string_view pickle) {
  const MetadataGlobals globals;
  const auto values = pt::unpickle(pickle, globals, kMaxMetadataBytes);
  return Reader(values->root, pickle.size()).read();
}

}  // namespace ddp::dcp

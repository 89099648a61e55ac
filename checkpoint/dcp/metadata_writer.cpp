#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/dcp/dcp_writer.h"
#include "checkpoint/pt/pickler.h"

namespace ddp::dcp {
namespace {

using safetensors::quote_name;

constexpr const char* kModule = "torch.distributed.checkpoint.metadata";

// All records of one key.
struct Item {
  std::string key{};
  std::vector<const DcpRecord*> records{};
};

void check_equal(const std::string& key, const DcpRecord& first, const DcpRecord& other) {
  if (first.is_tensor && other.is_tensor && first.path == other.path && first.dtype == other.dtype &&
      first.shape == other.shape) {
    return;
  }
  throw std::invalid_argument("two values have the key " + quote_name(key) +
                              ", as keys are parts of paths with dots between them: rename one");
}

std::vector<Item> items_of(const std::vector<DcpRecord>& records) {
  std::vector<Item> items;
  std::unordered_map<std::string, size_t> by_key;
  for (const auto& record : records) {
    const auto [known, is_new] = by_key.try_emplace(flat_key(record.path), items.size());
    if (is_new) items.push_back({.key = known->first});
    auto& item = items[known->second];
    if (!is_new) check_equal(item.key, *item.records.front(), record);
    item.records.push_back(&record);
  }
  // Python finds an item by where its chunk begins.
  for (auto& item : items) {
    std::set<std::vector<int64_t>> full, empty;
    for (const auto* record : item.records) {
      const bool has_elements = shards::numel(record->box) > 0;
      if (record->is_tensor && has_elements && !full.insert(record->box.offsets).second) {
        throw std::invalid_argument("two chunks of " + quote_name(item.key) + " begin at the same place");
      }
    }
    std::erase_if(item.records, [&](const DcpRecord* record) {
      const bool is_empty = record->is_tensor && shards::numel(record->box) == 0;
      return is_empty && (full.contains(record->box.offsets) || !empty.insert(record->box.offsets).second);
    });
  }
  return items;
}

// Protocol 2, with names and texts remembered.
class Writer {
 public:
  std::string write(const std::vector<Item>& items) {
    begin_object(kModule, "Metadata");
    text("state_dict_metadata");
    pickler_.begin_dict();
    for (const auto& item : items) {
      text(item.key);
      add_description(item);
    }
    pickler_.end_dict();
    text("planner_data");
    pickler_.begin_dict();
    for (const auto& item : items) {
      text(item.key);
      add_path(item.records.front()->path);
    }
    pickler_.end_dict();
    text("storage_data");
    pickler_.begin_dict();
    for (const auto& item : items) {
      for (size_t i = 0; i < item.records.size(); ++i) add_place(item.key, *item.records[i], i);
    }
    pickler_.end_dict();
    text("storage_meta");
    add_storage();
    text("version");
    text("1.0.0");
    end_object();
    return pickler_.take();
  }

 private:
  void text(const std::string& value) {
    remembered("t" + value, [&] { pickler_.text(value); });
  }

  void global(const std::string& module, const std::string& name) {
    remembered("g" + module + "\n" + name, [&] { pickler_.global(module, name); });
  }

  template <typename Make>
  void remembered(const std::string& key, const Make& make) {
    const auto [known, is_new] = memo_.try_emplace(key, static_cast<uint32_t>(memo_.size()));
    if (!is_new) return pickler_.get_memo(known->second);
    make();
    pickler_.put_memo(known->second);
  }

  // An object whose attributes follow as of a dict.
  void begin_object(const std::string& module, const std::string& name) {
    global(module, name);
    pickler_.begin_tuple();
    pickler_.end_tuple();
    pickler_.make();
    pickler_.begin_dict();
  }

  void end_object() {
    pickler_.end_dict();
    pickler_.build();
  }

  void size(const std::vector<int64_t>& numbers) {
    global("torch", "Size");
    pickler_.begin_tuple();
    pickler_.begin_tuple();
    for (const auto number : numbers) pickler_.integer(number);
    pickler_.end_tuple();
    pickler_.end_tuple();
    pickler_.call();
  }

  void add_description(const Item& item) {
    const auto& first = *item.records.front();
    if (!first.is_tensor) {
      global(kModule, "BytesStorageMetadata");
      pickler_.begin_tuple();
      pickler_.end_tuple();
      pickler_.make();
      return;
    }
    begin_object(kModule, "TensorStorageMetadata");
    text("properties");
    add_properties(first.dtype);
    text("size");
    size(first.shape);
    text("chunks");
    pickler_.begin_list();
    for (const auto* record : item.records) {
      begin_object(kModule, "ChunkStorageMetadata");
      text("offsets");
      size(record->box.offsets);
      text("sizes");
      size(record->box.sizes);
      end_object();
    }
    pickler_.end_list();
    end_object();
  }

  // Five parts of a tuple, which every version reads; newer ones write the strides as a sixth.
  void add_properties(const std::string& dtype) {
    global(kModule, "TensorProperties");
    pickler_.begin_tuple();
    pickler_.end_tuple();
    pickler_.make();
    pickler_.begin_tuple();
    global("torch", dtype);
    global("torch.serialization", "_get_layout");
    pickler_.begin_tuple();
    text("torch.strided");
    pickler_.end_tuple();
    pickler_.call();
    pickler_.boolean(false);  // requires_grad
    global(kModule, "_MEM_FORMAT_ENCODING");
    pickler_.begin_tuple();
    pickler_.integer(0);  // contiguous
    pickler_.end_tuple();
    pickler_.call();
    pickler_.boolean(false);  // pin_memory
    pickler_.end_tuple();
    pickler_.build();
  }

  void add_path(const Path& path) {
    pickler_.begin_tuple();
    for (const auto& part : path) {
      if (const auto* key = std::get_if<std::string>(&part)) {
        text(*key);
      } else {
        pickler_.integer(std::get<int64_t>(part));
      }
    }
    pickler_.end_tuple();
  }

  void add_place(const std::string& key, const DcpRecord& record, size_t number) {
    begin_object(kModule, "MetadataIndex");
    text("fqn");
    text(key);
    if (record.is_tensor) {
      text("offset");
      size(record.box.offsets);
    }
    text("index");
    if (record.is_tensor) {
      pickler_.integer(static_cast<int64_t>(number));
    } else {
      pickler_.none();
    }
    end_object();
    begin_object("torch.distributed.checkpoint.filesystem", "_StorageInfo");
    text("relative_path");
    text(record.item.file);
    text("offset");
    pickler_.whole_number(record.item.begin);
    text("length");
    pickler_.whole_number(record.item.size);
    end_object();
  }

  // Without the folder's path, whose class has another name in each Python.
  void add_storage() {
    begin_object(kModule, "StorageMeta");
    for (const auto* name : {"checkpoint_id", "save_id", "load_id"}) {
      text(name);
      pickler_.none();
    }
    text("modules");
    pickler_.begin_list();
    pickler_.end_list();
    end_object();
  }

  pt::Pickler pickler_;
  std::unordered_map<std::string, uint32_t> memo_;
};

}  // namespace

storage::FileRecord write_dcp_metadata(storage::FileSystem& file_system, const std::filesystem::path& folder,
                                       const std::vector<DcpRecord>& records) {
  const auto pickle = Writer().write(items_of(records));
  storage::DurableFile file(file_system, folder / ".metadata");
  file.write(pickle.data(), pickle.size());
  return file.finish();
}

}  // namespace ddp::dcp

// Makes the pickles of .metadata files, right and wrong ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/pt/pickler.h"

namespace ddp::test {

class DcpPickle {
 public:
  using Write = std::function<void(pt::Pickler& pickler)>;

  struct Item {
    std::string key;
    Write description;               ///< its value in state_dict_metadata
    std::vector<Write> places = {};  ///< pairs of storage_data
    Write path = {};                 ///< its value in planner_data
    std::string path_key = {};       ///< its key there, where that is another
  };

  static void object(pt::Pickler& pickler, const std::string& module, const std::string& name, const Write& state) {
    pickler.global(module, name);
    pickler.begin_tuple();
    pickler.end_tuple();
    pickler.make();
    state(pickler);
    pickler.build();
  }

  static void size(pt::Pickler& pickler, const std::vector<int64_t>& numbers) {
    pickler.global("torch", "Size");
    pickler.begin_tuple();
    pickler.begin_tuple();
    for (const int64_t number : numbers) pickler.integer(number);
    pickler.end_tuple();
    pickler.end_tuple();
    pickler.call();
  }

  static Write value() {
    return [](pt::Pickler& pickler) {
      pickler.global(kModule, "BytesStorageMetadata");
      pickler.begin_tuple();
      pickler.end_tuple();
      pickler.make();
    };
  }

  struct Chunk {
    std::vector<int64_t> offsets;
    std::vector<int64_t> sizes;
  };

  /// `format` writes the memory format, as its number or in the way of Python 3.11.0.
  static Write tensor(const std::string& dtype, const std::vector<int64_t>& shape, const std::vector<Chunk>& chunks,
                      const Write& format = format_number()) {
    return [=](pt::Pickler& pickler) {
      object(pickler, kModule, "TensorStorageMetadata", [&](pt::Pickler& state) {
        state.begin_dict();
        state.text("properties");
        object(state, kModule, "TensorProperties", [&](pt::Pickler& parts) {
          parts.begin_tuple();
          parts.global("torch", dtype);
          parts.global("torch.serialization", "_get_layout");
          parts.begin_tuple();
          parts.text("torch.strided");
          parts.end_tuple();
          parts.call();
          parts.boolean(true);
          format(parts);
          parts.boolean(false);
          parts.none();
          parts.end_tuple();
        });
        state.text("size");
        size(state, shape);
        state.text("chunks");
        state.begin_list();
        for (const Chunk& chunk : chunks) {
          object(state, kModule, "ChunkStorageMetadata", [&](pt::Pickler& parts) {
            parts.begin_dict();
            parts.text("offsets");
            size(parts, chunk.offsets);
            parts.text("sizes");
            size(parts, chunk.sizes);
            parts.end_dict();
          });
        }
        state.end_list();
        state.end_dict();
      });
    };
  }

  static Write format_number() {
    return [](pt::Pickler& pickler) {
      pickler.global(kModule, "_MEM_FORMAT_ENCODING");
      pickler.begin_tuple();
      pickler.integer(0);
      pickler.end_tuple();
      pickler.call();
    };
  }

  /// As Python 3.11.0 to 3.11.3 has enumerators.
  static Write format_attribute() {
    return [](pt::Pickler& pickler) {
      pickler.global("__builtin__", "getattr");
      pickler.begin_tuple();
      pickler.global(kModule, "_MEM_FORMAT_ENCODING");
      pickler.text("TORCH_CONTIGUOUS_FORMAT");
      pickler.end_tuple();
      pickler.call();
    };
  }

  /// Where an item is: `more` adds attributes.
  static Write place(const std::string& key, const std::vector<int64_t>* offsets, const std::string& file,
                     int64_t begin, int64_t length, const Write& more = {}) {
    const bool is_tensor = offsets != nullptr;
    const std::vector<int64_t> at = is_tensor ? *offsets : std::vector<int64_t>{};
    return [=](pt::Pickler& pickler) {
      object(pickler, kModule, "MetadataIndex", [&](pt::Pickler& state) {
        state.begin_dict();
        state.text("fqn");
        state.text(key);
        if (is_tensor) {
          state.text("offset");
          size(state, at);
        }
        state.text("index");
        state.none();
        state.end_dict();
      });
      object(pickler, "torch.distributed.checkpoint.filesystem", "_StorageInfo", [&](pt::Pickler& state) {
        state.begin_dict();
        state.text("relative_path");
        state.text(file);
        state.text("offset");
        state.integer(begin);
        state.text("length");
        state.integer(length);
        if (more) more(state);
        state.end_dict();
      });
    };
  }

  /// The whole. `storage` writes checkpoint_id.
  static std::string metadata(const std::vector<Item>& items, const Write& storage = {}) {
    pt::Pickler pickler;
    object(pickler, kModule, "Metadata", [&](pt::Pickler& state) {
      state.begin_dict();
      state.text("state_dict_metadata");
      state.begin_dict();
      for (const Item& item : items) {
        if (!item.description) continue;
        state.text(item.key);
        item.description(state);
      }
      state.end_dict();
      state.text("planner_data");
      state.begin_dict();
      for (const Item& item : items) {
        if (!item.path) continue;
        state.text(item.path_key.empty() ? item.key : item.path_key);
        item.path(state);
      }
      state.end_dict();
      state.text("storage_data");
      state.begin_dict();
      for (const Item& item : items) {
        for (const Write& place : item.places) place(state);
      }
      state.end_dict();
      if (storage) {
        state.text("storage_meta");
        object(state, kModule, "StorageMeta", [&](pt::Pickler& parts) {
          parts.begin_dict();
          parts.text("checkpoint_id");
          storage(parts);
          parts.end_dict();
        });
      }
      state.end_dict();
    });
    return pickler.take();
  }

  static constexpr const char* kModule = "torch.distributed.checkpoint.metadata";
};

}  // namespace ddp::test

// Tensors of a DCP folder that was saved with SerializationFormat.SAFETENSORS: those of a rank's file form one
// safetensors file, which the metadata gives as the place of each. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>
#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/dcp/metadata.h"

namespace ddp::dcp {

class SafetensorsItems {
 public:
  /// Whether the chunk is stored so: then its item has as many bytes as its elements, which no archive of torch.save()
  /// has.
  static bool is_one(const Entry& entry, const StoredChunk& chunk);

  struct Range {
    uint64_t begin = 0;
    uint64_t size = 0;
  };

  /// Where the elements of the chunk are in `path`, its file. Reads a header once. Throws pt::FormatError when there is
  /// no such header, or what it says of the tensor is not what `chunk` says; std::system_error.
  Range find(storage::FileSystem& file_system, const std::filesystem::path& path, const Entry& entry,
             const StoredChunk& chunk);

 private:
  struct File {
    uint64_t data_begin = 0;
    std::map<std::string, safetensors::TensorEntry> tensors;
    std::map<std::string, std::vector<int64_t>> offsets;  // of the chunks in their tensors
  };

  const File& open(storage::FileSystem& file_system, const std::filesystem::path& path, const StoredItem& item);

  std::map<std::pair<uint32_t, uint64_t>, File> files_;  // by number and the header's position
};

}  // namespace ddp::dcp

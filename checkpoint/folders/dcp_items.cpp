// The folders of torch.distributed.checkpoint as sources.
#include <algorithm>
#include <string>
#include <utility>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/dcp/dcp_folder.h"
#include "checkpoint/folders/sharded_folder.h"
#include "checkpoint/pt/crc32.h"
#include "checkpoint/pt/tensor_item.h"
#include "checkpoint/shards/block_file.h"
#include "checkpoint/storage/damage.h"

namespace ddp {
namespace {

// Compares the items of one file; its descriptor stays open for all of them.
class ItemVerifier {
 public:
  ItemVerifier(storage::FileSystem& file_system, const std::filesystem::path& path)
      : file_system_(file_system), file_(file_system, path, nullptr) {}

  /// False when the item has no checksum.
  bool verify(const std::string& name, const shards::CatalogTensor& tensor, const shards::Chunk& chunk) {
    const pt::TensorItem item{
        .begin = chunk.begin, .size = chunk.size, .dtype = tensor.dtype, .sizes = chunk.box.sizes};
    try {
      const auto place = pt::find_elements(file_system_, file_.descriptor(), file_.path(), item);
      if (place.is_deflated || chunk.size <= shards::ReadBuffer::kBytes) {
        pt::read_tensor_item(file_system_, file_.descriptor(), file_.path(), item);
      } else if (place.crc32 != 0) {
        compare_storage(place);
      }
      return place.crc32 != 0 || place.storage_size == 0;
    } catch (const pt::FormatError& error) {
      throw storage::DamagedCheckpoint(file_.path().string() + ": the item of " + safetensors::quote_name(name) +
                                       " is damaged: " + error.what());
    }
  }

 private:
  void compare_storage(const pt::ElementPlace& place) {
    uint32_t checksum = 0;
    file_.read(place.storage_begin, place.storage_begin + place.storage_size, buffer_,
               [&](uint64_t, std::string_view bytes) { checksum = pt::crc32(bytes.data(), bytes.size(), checksum); });
    if (checksum != place.crc32) throw pt::FormatError("its elements are not those that were written (CRC-32)");
  }

  storage::FileSystem& file_system_;
  shards::BlockFile file_;
  shards::ReadBuffer buffer_;
};

}  // namespace

ShardedFolder open_dcp_folder(storage::FileSystem& file_system, const std::filesystem::path& folder) {
  auto run = dcp::read_dcp_folder(file_system, folder);
  ShardedFolder opened{.kind = "folder of torch.distributed.checkpoint",
                       .texts = std::move(run.texts),
                       .skipped = std::move(run.skipped)};
  const auto checksums = std::make_shared<const shards::BlockChecksums>();
  for (auto& [name, catalog] : run.parts) {
    opened.parts[name] =
        std::make_unique<ChunkedPart>(ChunkedPart{.catalog = std::move(catalog), .checksums = checksums});
  }
  return opened;
}

bool verify_dcp_items(storage::FileSystem& file_system, const ShardedFolder& folder, int index, int shares) {
  bool has_all = true;
  int64_t number_of_chunk = 0;
  for (const auto& [part, content] : folder.parts) {
    // Grouped by file, so that few files are open at a time.
    std::map<uint32_t, std::vector<std::pair<const std::string*, const shards::Chunk*>>> by_file;
    const auto& tensors = content->catalog.tensors;
    for (const auto& [name, tensor] : tensors) {
      for (const auto& chunk : tensor.chunks) {
        if (number_of_chunk++ % shares == index) by_file[chunk.file].emplace_back(&name, &chunk);
      }
    }
    for (const auto& [number, chunks] : by_file) {
      const auto is_archive = [](const auto& each) { return each.second->form == shards::ChunkForm::kTorchSave; };
      if (std::ranges::none_of(chunks, is_archive)) {
        has_all = false;
        continue;
      }
      ItemVerifier verifier(file_system, content->catalog.files.at(number));
      for (const auto& [name, chunk] : chunks) {
        if (chunk->form != shards::ChunkForm::kTorchSave) {
          has_all = false;
        } else {
          has_all = verifier.verify(*name, tensors.at(*name), *chunk) && has_all;
        }
      }
    }
  }
  return has_all;
}

}  // namespace ddp

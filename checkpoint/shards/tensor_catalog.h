// Which tensors the files of a checkpoint hold, whole or in chunks, and where the bytes are. No LibTorch and no I/O.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoint/shards/box.h"

namespace ddp::shards {

/// How a chunk's bytes lie in its file.
enum class ChunkForm : uint8_t {
  kElements,   ///< the elements in row-major order, as in a safetensors file
  kTorchSave,  ///< a whole archive of torch.save() that holds the chunk as a tensor, as in a .distcp file
};

/// One part of a tensor in one file.
struct Chunk {
  Box box{};
  uint32_t file = 0;   ///< its number in TensorCatalog::files
  uint64_t begin = 0;  ///< first byte, counted from the beginning of the file
  uint64_t size = 0;   ///< bytes
  ChunkForm form = ChunkForm::kElements;
};

struct CatalogTensor {
  std::string dtype{};  ///< as in Python, without "torch.": "float32"
  std::vector<int64_t> shape{};
  std::vector<Chunk> chunks{};
};

/// The tensors of a model, or of an optimizer's state.
struct TensorCatalog {
  std::vector<std::filesystem::path> files{};
  std::map<std::string, CatalogTensor> tensors{};
  std::map<std::string, std::string> metadata{};  ///< as a safetensors file's: an optimizer's groups, for example
};

/// Thrown by check() for chunks that do not form the tensor; the message names the tensor, the rule, and the chunks
/// that break it with their files.
class CatalogError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Removes chunks without elements, orders the others, and compares them with the tensors: known dtypes, chunks inside
/// of their tensors, as many bytes as elements ask for (of kElements), and each element in exactly one chunk. Throws
/// CatalogError. Takes n log n steps for n chunks in grids and all that planes divide, and refuses catalogs whose
/// chunks are so many and so irregular that the comparison would take more than seconds.
void check(TensorCatalog& catalog);

}  // namespace ddp::shards

// Gives the elements of tensors one tensor after the other, from memory or from the files that hold chunks of them, in
// bounded memory. No LibTorch.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/storage/byte_sink.h"
#include "checkpoint/tool/raw_tensor.h"

namespace ddp::tool {

/// Bytes of chunks that are assembled at once. A tensor in a .distcp file is assembled whole, since the checksum there
/// covers each chunk as a whole.
inline constexpr uint64_t kAssembledBytes = uint64_t{16} << 20;

/// Use: add() all tensors in the order in which they will be asked for, then write() each. Small tensors that follow
/// each other are read together. Throws as shards::read_chunks() does.
class ElementReader {
 public:
  /// Returns the tensor's number.
  size_t add(const RawTensor& tensor);

  /// Puts the elements of the tensor `index` into the sink in row-major order. Any order of the tensors is possible.
  void write(size_t index, storage::ByteSink& sink);

 private:
  bool is_assembled(size_t index) const { return index >= first_ && index < last_; }
  void assemble(size_t index);
  void write_in_pieces(const RawTensor& tensor, storage::ByteSink& sink);

  storage::FileSystem file_system_;
  std::vector<RawTensor> tensors_;
  size_t first_ = 0;  // of the tensors in buffer_
  size_t last_ = 0;
  std::vector<size_t> begins_;  // in buffer_, from first_ on
  std::string buffer_;
};

/// The parts of a tensor of `shape` with elements of `element` bytes that lie one after the other in row-major order,
/// each of at most `most` bytes, or one element.
std::vector<shards::Box> row_major_pieces(const std::vector<int64_t>& shape, uint64_t element, uint64_t most);

}  // namespace ddp::tool

#include "checkpoint/tool/element_reader.h"

#include <algorithm>

#include "checkpoint/pt/dtypes.h"
#include "checkpoint/shards/chunk_reader.h"

namespace ddp::tool {
namespace {

// Only whole chunks of such a tensor can be compared with their checksums.
bool is_read_whole(const RawTensor& tensor) {
  return std::ranges::any_of(tensor.chunked->chunks,
                             [](const auto& chunk) { return chunk.form == shards::ChunkForm::kTorchSave; });
}

void read(storage::FileSystem& file_system, const ChunkedPart& part, const std::vector<shards::ReadRequest>& requests) {
  shards::read_chunks(file_system, part.catalog, *part.checksums, requests);
}

}  // namespace

std::vector<shards::Box> row_major_pieces(const std::vector<int64_t>& shape, uint64_t element, uint64_t most) {
  // The first dimension along which one index, with all later dimensions, fits into a piece.
  size_t cut = shape.size();
  uint64_t below = element;
  while (cut > 0 && below * static_cast<uint64_t>(shape[cut - 1]) <= most) below *= static_cast<uint64_t>(shape[--cut]);
  if (cut == 0) return {shards::whole(shape)};
  const auto dimension = cut - 1;
  const auto rows = std::max<int64_t>(1, static_cast<int64_t>(most / below));
  std::vector<shards::Box> pieces;
  auto box = shards::whole(shape);
  for (size_t i = 0; i < dimension; ++i) box.sizes[i] = 1;
  for (bool is_end = false; !is_end;) {
    for (int64_t row = 0; row < shape[dimension]; row += rows) {
      box.offsets[dimension] = row;
      box.sizes[dimension] = std::min(rows, shape[dimension] - row);
      pieces.push_back(box);
    }
    // The next place in the dimensions before, the last one fastest.
    is_end = true;
    for (size_t i = dimension; i-- > 0 && is_end;) {
      is_end = ++box.offsets[i] == shape[i];
      if (is_end) box.offsets[i] = 0;
    }
  }
  return pieces;
}

size_t ElementReader::add(const RawTensor& tensor) {
  tensors_.push_back(tensor);
  return tensors_.size() - 1;
}

void ElementReader::write(size_t index, storage::ByteSink& sink) {
  const auto& tensor = tensors_.at(index);
  if (tensor.part == nullptr) {
    sink.write(tensor.bytes.data(), tensor.bytes.size());
  } else if (tensor.size() > kAssembledBytes && !is_read_whole(tensor)) {
    write_in_pieces(tensor, sink);
  } else {
    if (!is_assembled(index)) assemble(index);
    sink.write(buffer_.data() + begins_[index - first_], tensor.size());
  }
}

// Reads the tensor and those that follow it, as many as fit into the buffer.
void ElementReader::assemble(size_t index) {
  const auto* part = tensors_[index].part;
  begins_.clear();
  first_ = last_ = index;
  size_t bytes = 0;
  for (; last_ < tensors_.size() && tensors_[last_].part == part; ++last_) {
    if (last_ > index && bytes + tensors_[last_].size() > kAssembledBytes) break;
    begins_.push_back(bytes);
    bytes += tensors_[last_].size();
  }
  const auto last = last_;
  last_ = index;  // until the read succeeds, the buffer holds no tensor
  if (bytes > buffer_.capacity()) buffer_ = std::string();
  buffer_.resize(bytes);
  std::vector<shards::ReadRequest> requests;
  for (auto i = index; i < last; ++i) {
    requests.push_back({.name = tensors_[i].name,
                        .tensor = tensors_[i].chunked,
                        .box = shards::whole(tensors_[i].sizes),
                        .target = buffer_.data() + begins_[i - index]});
  }
  read(file_system_, *part, requests);
  last_ = last;
}

void ElementReader::write_in_pieces(const RawTensor& tensor, storage::ByteSink& sink) {
  last_ = first_;
  const auto element = pt::dtype_by_name(tensor.dtype)->bytes;
  for (const auto& piece : row_major_pieces(tensor.sizes, element, kAssembledBytes)) {
    buffer_.resize(static_cast<size_t>(shards::numel(piece)) * element);
    read(file_system_, *tensor.part,
         {{.name = tensor.name, .tensor = tensor.chunked, .box = piece, .target = buffer_.data()}});
    sink.write(buffer_.data(), buffer_.size());
  }
}

}  // namespace ddp::tool

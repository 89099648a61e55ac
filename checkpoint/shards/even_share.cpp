#include "checkpoint/shards/even_share.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string_view>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/pt/dtypes.h"

namespace ddp::shards {
namespace {

__extension__ typedef __int128 Int128;  // NOLINT(modernize-use-using): GCC's extension

// Smaller tensors are not cut: each piece costs an entry in a file's header.
constexpr int64_t kSmall = int64_t{1} << 20;

// One holder's range of positions, where all tensors' bytes are numbered one after the other.
struct PositionRange {
  int64_t begin = 0;
  int64_t end = 0;

  bool contains(int64_t position) const { return position >= begin && position < end; }
};

PositionRange positions_of(int index, int holders, int64_t bytes) {
  const auto bound = [&](int holder) {
    return static_cast<int64_t>((static_cast<Int128>(bytes) * holder + holders - 1) / holders);
  };
  // Tensors without bytes at the end belong to the last holder.
  return {.begin = bound(index), .end = index + 1 < holders ? bound(index + 1) : std::numeric_limits<int64_t>::max()};
}

int64_t element_bytes(const HeldTensor& tensor) {
  const auto* dtype = pt::dtype_by_name(tensor.dtype);
  if (dtype == nullptr)
    throw std::invalid_argument("the tensor " + safetensors::quote_name(tensor.name) + " has the dtype " +
                                safetensors::quote_name(tensor.dtype) + ", which is not known");
  return static_cast<int64_t>(dtype->bytes);
}

class Hash {
 public:
  explicit Hash(uint64_t seed) : state_(seed) {}

  void add(uint64_t value) {
    // One round of the mixing function of SplitMix64 (Steele et al., OOPSLA 2014).
    state_ += value + 0x9e3779b97f4a7c15U;
    state_ = (state_ ^ (state_ >> 30U)) * 0xbf58476d1ce4e5b9U;
    state_ = (state_ ^ (state_ >> 27U)) * 0x94d049bb133111ebU;
    state_ ^= state_ >> 31U;
  }
  void add(std::string_view text) {
    add(text.size());
    for (size_t begin = 0; begin < text.size(); begin += 8) {
      uint64_t word = 0;
      const auto piece = text.substr(begin, 8);
      for (size_t i = 0; i < piece.size(); ++i) word |= uint64_t{static_cast<unsigned char>(piece[i])} << (8 * i);
      add(word);
    }
  }
  void add(const std::vector<int64_t>& numbers) {
    add(numbers.size());
    for (const auto number : numbers) add(static_cast<uint64_t>(number));
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_;
};

uint64_t weight_of(const HeldTensor& tensor) {
  Hash hash(3);
  hash.add(tensor.name);
  return hash.value() | 1U;
}

}  // namespace

std::vector<ShareItem> even_share(const std::vector<HeldTensor>& tensors, int index, int holders) {
  if (index < 0 || index >= holders) {
    throw std::invalid_argument("there is no holder " + std::to_string(index) + " of " + std::to_string(holders));
  }
  int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += numel(tensor.box) * element_bytes(tensor);
  const auto positions = positions_of(index, holders, bytes);
  std::vector<ShareItem> share;
  int64_t position = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& tensor = tensors[i];
    const auto size = numel(tensor.box) * element_bytes(tensor);
    const auto begin = position;
    position += size;
    // A tensor that is not divided belongs to the holder of its middle byte.
    if (size < kSmall || tensor.box.sizes.empty()) {
      if (positions.contains(begin + size / 2)) share.push_back({.tensor = i, .box = tensor.box});
      continue;
    }
    const auto rows = tensor.box.sizes[0];
    const auto row_bytes = size / rows;
    const auto first_row = [&](int64_t bound) {
      const auto middle = begin + row_bytes / 2;  // of row 0
      if (bound <= middle) return int64_t{0};
      return std::min(rows, (bound - middle - 1) / row_bytes + 1);
    };
    const auto first = first_row(positions.begin);
    const auto last = first_row(positions.end);
    if (first == last) continue;
    auto box = tensor.box;
    box.offsets[0] += first;
    box.sizes[0] = last - first;
    share.push_back({.tensor = i, .box = std::move(box)});
  }
  return share;
}

std::array<uint64_t, 2> digest(const std::vector<HeldTensor>& tensors) {
  std::array<Hash, 2> hashes = {Hash(1), Hash(2)};
  for (auto& hash : hashes) {
    hash.add(tensors.size());
    for (const auto& tensor : tensors) {
      hash.add(tensor.name);
      hash.add(tensor.dtype);
      hash.add(tensor.shape);
      hash.add(tensor.box.offsets);
      hash.add(tensor.box.sizes);
    }
  }
  return {hashes[0].value(), hashes[1].value()};
}

uint64_t weight_of_parts(const std::vector<HeldTensor>& tensors) {
  uint64_t sum = 0;
  for (const auto& tensor : tensors) sum += weight_of(tensor) * static_cast<uint64_t>(numel(tensor.box));
  return sum;
}

uint64_t weight_of_wholes(const std::vector<HeldTensor>& tensors) {
  uint64_t sum = 0;
  for (const auto& tensor : tensors) sum += weight_of(tensor) * static_cast<uint64_t>(numel(whole(tensor.shape)));
  return sum;
}

}  // namespace ddp::shards

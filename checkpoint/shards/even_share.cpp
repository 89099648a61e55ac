#include "checkpoint/shards/even_share.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include "checkpoint/pt/dtypes.h"

namespace ddp::shards {
namespace {

__extension__ typedef __int128 Wide;  // NOLINT(modernize-use-using): GCC's extension

// Smaller tensors are not cut: each piece costs an entry in a file's header.
constexpr int64_t kSmall = int64_t{1} << 20;

// The positions of all tensors' bytes, one after the other, divided among the holders.
class Division {
 public:
  Division(int64_t bytes, int holders) : bytes_(bytes), holders_(holders) {}

  /// Who has the byte at `position`.
  int holder_of(int64_t position) const {
    if (bytes_ == 0) return 0;
    const auto holder = static_cast<Wide>(position) * holders_ / bytes_;
    return std::min(static_cast<int>(holder), holders_ - 1);
  }

 private:
  int64_t bytes_;
  int holders_;
};

int64_t element_bytes(const HeldTensor& tensor) {
  const auto* dtype = pt::dtype_by_name(tensor.dtype);
  if (dtype == nullptr) throw std::invalid_argument("the dtype " + tensor.dtype + " is not known");
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
  int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += numel(tensor.box) * element_bytes(tensor);
  const Division division(bytes, holders);
  std::vector<ShareItem> share;
  int64_t position = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& tensor = tensors[i];
    const auto size = numel(tensor.box) * element_bytes(tensor);
    const auto begin = position;
    position += size;
    if (size < kSmall || tensor.box.sizes.empty()) {
      if (division.holder_of(begin + size / 2) == index) share.push_back({.tensor = i, .box = tensor.box});
      continue;
    }
    const auto rows = tensor.box.sizes[0];
    const auto row_bytes = size / rows;
    // The first row that holder `who` or a later one has, by the middle of each row.
    const auto first_row = [&](int who) {
      int64_t low = 0;
      int64_t high = rows;
      while (low < high) {
        const auto middle = std::midpoint(low, high);
        if (division.holder_of(begin + middle * row_bytes + row_bytes / 2) < who) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      return low;
    };
    const auto first = first_row(index);
    const auto last = first_row(index + 1);
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

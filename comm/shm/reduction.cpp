#include "comm/shm/reduction.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace ddp::shm {
namespace {

size_t ceil_of(size_t number, size_t divisor) {
  return (number + divisor - 1) / divisor;
}

// gloo cuts the whole into equally many segments of at most 1 MiB for each rank, two at least: of equal size for
// all_reduce, of the largest one for reduce where they are more than two.
size_t ring_part_of(size_t count, size_t element_size, size_t ranks, Ring ring) {
  constexpr size_t kMaxSegmentBytes = size_t{1} << 20;
  const size_t bytes = count * element_size;
  const size_t largest = kMaxSegmentBytes / element_size * element_size;
  const size_t segments = aligned(std::max(ceil_of(bytes, largest), 2 * ranks), ranks);
  const bool are_largest = ring == Ring::kReduce && bytes > 2 * ranks * largest;
  const size_t segment = are_largest ? largest : aligned(ceil_of(bytes, segments), element_size);
  return std::max<size_t>(1, segments / ranks * segment / element_size);
}

Combine found(const Reduction& reduction) {
  const Combine combine = find_combine(reduction.dtype, reduction.op);
  if (combine == nullptr) throw std::invalid_argument("bitwise operations need an integer dtype");
  return combine;
}

}  // namespace

ReductionKernel::ReductionKernel(const Reduction& reduction, size_t count, int ranks, Ring ring)
    : reduction_(reduction), ranks_(ranks), element_size_(size_of(reduction.dtype)), combine_(found(reduction)) {
  // A sum of two is the same in either order.
  if (reduction.order == Order::kRing && ranks > 2)
    ring_part_ =
        ring_part_of(reduction.whole == 0 ? count : reduction.whole, element_size_, static_cast<size_t>(ranks), ring);
}

void ReductionKernel::combine(std::byte* out, const std::byte* const* sources, size_t begin, size_t end) const {
  if (begin >= end) return;
  if (ring_part_ != 0) {
    combine_in_ring_order(out, sources, begin, end);
  } else {
    combine_(out, sources, ranks_, end - begin, /*round_each_step=*/false);
  }
}

// The sum of rank k's part begins at rank k - 1 and goes down to rank k.
void ReductionKernel::combine_in_ring_order(std::byte* out, const std::byte* const* sources, size_t begin,
                                            size_t end) const {
  const auto ranks = static_cast<size_t>(ranks_);
  std::vector<const std::byte*> ordered(ranks);
  for (size_t at = begin; at < end;) {
    const size_t part = (reduction_.first + at) / ring_part_;
    const size_t next = std::min(end, (part + 1) * ring_part_ - reduction_.first);
    const size_t offset = (at - begin) * element_size_;
    for (size_t i = 0; i < ranks; ++i) ordered[i] = sources[(part + 2 * ranks - 1 - i) % ranks] + offset;
    combine_(out + offset, ordered.data(), ranks_, next - at, /*round_each_step=*/true);
    at = next;
  }
}

Signature ReductionKernel::signature(Signature rest) const {
  rest.dtype = static_cast<uint8_t>(reduction_.dtype);
  rest.op = static_cast<uint8_t>(reduction_.op);
  rest.options = static_cast<uint8_t>(reduction_.order);
  return rest;
}

}  // namespace ddp::shm

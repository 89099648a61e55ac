// Internal: how the ranks' numbers are combined, and in which order, which decides the last bits of sums. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/shm/combine.h"
#include "comm/shm/layout.h"

namespace ddp::shm {

enum class Order : uint8_t {
  kByRank,  ///< ((x0 + x1) + x2) ..., of 16-bit numbers in float32
  kRing,    ///< as gloo's rings, hence Python's bits for any number of ranks
};

/// gloo's rings cut large tensors in different ways.
enum class Ring : uint8_t { kAllReduce, kReduce };

struct Reduction {
  DType dtype = DType::kFloat32;
  Operator op = Operator::kSum;
  Order order = Order::kByRank;
  size_t first = 0;  ///< its elements follow so many others of `whole`
  size_t whole = 0;  ///< elements that a ring would reduce at once; 0: those of the call
};

/// A reduction of `count` elements of each of `ranks` ranks.
class ReductionKernel {
 public:
  /// Throws std::invalid_argument for an operator that the numbers do not have.
  ReductionKernel(const Reduction& reduction, size_t count, int ranks, Ring ring = Ring::kAllReduce);

  size_t element_size() const { return element_size_; }
  /// Combines elements `begin` to `end` of the whole. `sources[rank]` and `out` point to the element `begin`.
  void combine(std::byte* out, const std::byte* const* sources, size_t begin, size_t end) const;
  /// Its part of a signature.
  Signature signature(Signature rest) const;

 private:
  void combine_in_ring_order(std::byte* out, const std::byte* const* sources, size_t begin, size_t end) const;

  const Reduction reduction_;
  const int ranks_;
  const size_t element_size_;
  const Combine combine_;
  size_t ring_part_ = 0;  // elements whose sums begin at the same rank
};

}  // namespace ddp::shm

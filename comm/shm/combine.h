// Internal: numbers of several ranks made one, element by element; vectorised, once per instruction set. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::shm {

enum class DType : uint8_t { kFloat32, kFloat64, kFloat16, kBFloat16, kInt8, kUInt8, kInt32, kInt64 };
inline constexpr int kDTypes = 8;

enum class Operator : uint8_t { kSum, kAverage, kProduct, kMin, kMax, kAnd, kOr, kXor };
inline constexpr int kOperators = 8;

/// Bytes of one element.
size_t size_of(DType dtype);

/// `out[i]` = ((sources[0][i] op sources[1][i]) op sources[2][i]) ..., `count` elements of `sources_count` >= 1
/// sources; an average is divided by their number at the end. 16-bit numbers are kept in float32 until the end, or are
/// rounded after each step. `out` may be one of the sources. Integers wrap around.
using Combine = void (*)(std::byte* out, const std::byte* const* sources, int sources_count, size_t count,
                         bool round_each_step);

/// Null for operations on the bits of floating-point numbers.
using FindCombine = Combine (*)(DType dtype, Operator op);

/// One way to compile the loops.
struct CombineLevel {
  const char* name;
  FindCombine find;
};

/// Those that this processor runs, the fastest first; there is at least one.
int supported_combine_levels(const CombineLevel* (&levels)[3]);

/// The fastest, or null.
Combine find_combine(DType dtype, Operator op);

}  // namespace ddp::shm

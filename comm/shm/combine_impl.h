// Internal: the loops of combine.h. Each source that includes this names itself by DDPRUN_COMBINE_LEVEL and
// DDPRUN_COMBINE_NAME and is compiled for one instruction set; nothing here may have external linkage, or the linker
// would take one source's code for all.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "comm/shm/combine.h"
#include "comm/shm/half_numbers.h"

namespace ddp::shm {
namespace {

constexpr size_t kBlock = 256;  // elements in flight, in the first-level cache

template <typename T>
struct Plain {
  using Memory = T;
  using Wide = T;
  static Wide load(Memory value) { return value; }
  static Memory store(Wide value) { return value; }
};

struct Half {
  using Memory = uint16_t;
  using Wide = float;
  static Wide load(Memory value) { return half_to_float(value); }
  static Memory store(Wide value) { return float_to_half(value); }
};

struct BFloat {
  using Memory = uint16_t;
  using Wide = float;
  static Wide load(Memory value) { return bfloat_to_float(value); }
  static Memory store(Wide value) { return float_to_bfloat(value); }
};

// Signed integers wrap around as unsigned ones.
template <typename T>
auto raw(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::make_unsigned_t<T>>(value);
  } else {
    return value;
  }
}

template <Operator kOperator, typename T>
T apply(T a, T b) {
  if constexpr (kOperator == Operator::kSum || kOperator == Operator::kAverage) return static_cast<T>(raw(a) + raw(b));
  if constexpr (kOperator == Operator::kProduct) return static_cast<T>(raw(a) * raw(b));
  if constexpr (kOperator == Operator::kMin) return b < a ? b : a;
  if constexpr (kOperator == Operator::kMax) return a < b ? b : a;
  if constexpr (std::is_integral_v<T>) {
    if constexpr (kOperator == Operator::kAnd) return static_cast<T>(a & b);
    if constexpr (kOperator == Operator::kOr) return static_cast<T>(a | b);
    if constexpr (kOperator == Operator::kXor) return static_cast<T>(a ^ b);
  }
}

template <typename Kind, Operator kOperator>
void combine_two(typename Kind::Memory* out, const typename Kind::Memory* a, const typename Kind::Memory* b,
                 size_t count) {
  using Wide = typename Kind::Wide;
  for (size_t i = 0; i < count; ++i) {
    Wide value = apply<kOperator>(Kind::load(a[i]), Kind::load(b[i]));
    if constexpr (kOperator == Operator::kAverage) value = static_cast<Wide>(value / Wide{2});
    out[i] = Kind::store(value);
  }
}

template <typename Kind, Operator kOperator>
void combine_block(typename Kind::Memory* out, const typename Kind::Memory* const* sources, int sources_count,
                   size_t begin, size_t count, bool round_each_step) {
  using Wide = typename Kind::Wide;
  Wide values[kBlock];
  for (size_t i = 0; i < count; ++i) values[i] = Kind::load(sources[0][begin + i]);
  for (int source = 1; source < sources_count; ++source) {
    const typename Kind::Memory* from = sources[source] + begin;
    for (size_t i = 0; i < count; ++i) values[i] = apply<kOperator>(values[i], Kind::load(from[i]));
    if constexpr (!std::is_same_v<Wide, typename Kind::Memory>) {
      if (!round_each_step) continue;
      for (size_t i = 0; i < count; ++i) values[i] = Kind::load(Kind::store(values[i]));
    }
  }
  if constexpr (kOperator == Operator::kAverage) {
    const auto divisor = static_cast<Wide>(sources_count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<Wide>(values[i] / divisor);
  }
  for (size_t i = 0; i < count; ++i) out[begin + i] = Kind::store(values[i]);
}

template <typename Kind, Operator kOperator>
void combine(std::byte* out_bytes, const std::byte* const* source_bytes, int sources_count, size_t count,
             bool round_each_step) {
  using Memory = typename Kind::Memory;
  auto* out = reinterpret_cast<Memory*>(out_bytes);
  const auto* sources = reinterpret_cast<const Memory* const*>(source_bytes);
  if (sources_count == 2) {
    combine_two<Kind, kOperator>(out, sources[0], sources[1], count);
    return;
  }
  for (size_t begin = 0; begin < count; begin += kBlock) {
    combine_block<Kind, kOperator>(out, sources, sources_count, begin, std::min(kBlock, count - begin),
                                   round_each_step);
  }
}

template <typename Kind>
Combine find_operator(Operator op) {
  switch (op) {
    case Operator::kSum:
      return combine<Kind, Operator::kSum>;
    case Operator::kAverage:
      return combine<Kind, Operator::kAverage>;
    case Operator::kProduct:
      return combine<Kind, Operator::kProduct>;
    case Operator::kMin:
      return combine<Kind, Operator::kMin>;
    case Operator::kMax:
      return combine<Kind, Operator::kMax>;
    default:
      break;
  }
  if constexpr (std::is_integral_v<typename Kind::Wide>) {
    if (op == Operator::kAnd) return combine<Kind, Operator::kAnd>;
    if (op == Operator::kOr) return combine<Kind, Operator::kOr>;
    if (op == Operator::kXor) return combine<Kind, Operator::kXor>;
  }
  return nullptr;
}

Combine find(Number number, Operator op) {
  switch (number) {
    case Number::kFloat32:
      return find_operator<Plain<float>>(op);
    case Number::kFloat64:
      return find_operator<Plain<double>>(op);
    case Number::kFloat16:
      return find_operator<Half>(op);
    case Number::kBFloat16:
      return find_operator<BFloat>(op);
    case Number::kInt8:
      return find_operator<Plain<int8_t>>(op);
    case Number::kUInt8:
      return find_operator<Plain<uint8_t>>(op);
    case Number::kInt32:
      return find_operator<Plain<int32_t>>(op);
    case Number::kInt64:
      return find_operator<Plain<int64_t>>(op);
  }
  return nullptr;
}

}  // namespace

extern const CombineLevel DDPRUN_COMBINE_LEVEL;
const CombineLevel DDPRUN_COMBINE_LEVEL{.name = DDPRUN_COMBINE_NAME, .find = find};

}  // namespace ddp::shm

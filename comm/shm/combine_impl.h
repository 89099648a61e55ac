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
struct NativeElement {
  using StoredType = T;
  using ComputeType = T;
  static ComputeType load(StoredType value) { return value; }
  static StoredType store(ComputeType value) { return value; }
};

struct HalfElement {
  using StoredType = uint16_t;
  using ComputeType = float;
  static ComputeType load(StoredType value) { return half_to_float(value); }
  static StoredType store(ComputeType value) { return float_to_half(value); }
};

struct BFloat16Element {
  using StoredType = uint16_t;
  using ComputeType = float;
  static ComputeType load(StoredType value) { return bfloat_to_float(value); }
  static StoredType store(ComputeType value) { return float_to_bfloat(value); }
};

// Signed integers wrap around as unsigned ones.
template <typename T>
auto as_unsigned(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::make_unsigned_t<T>>(value);
  } else {
    return value;
  }
}

template <Operator kOperator, typename T>
T apply(T a, T b) {
  if constexpr (kOperator == Operator::kSum || kOperator == Operator::kAverage)
    return static_cast<T>(as_unsigned(a) + as_unsigned(b));
  if constexpr (kOperator == Operator::kProduct) return static_cast<T>(as_unsigned(a) * as_unsigned(b));
  if constexpr (kOperator == Operator::kMin) return b < a ? b : a;
  if constexpr (kOperator == Operator::kMax) return a < b ? b : a;
  if constexpr (std::is_integral_v<T>) {
    if constexpr (kOperator == Operator::kAnd) return static_cast<T>(a & b);
    if constexpr (kOperator == Operator::kOr) return static_cast<T>(a | b);
    if constexpr (kOperator == Operator::kXor) return static_cast<T>(a ^ b);
  }
}

template <typename Element, Operator kOperator>
void combine_two(typename Element::StoredType* out, const typename Element::StoredType* a,
                 const typename Element::StoredType* b, size_t count) {
  using ComputeType = typename Element::ComputeType;
  for (size_t i = 0; i < count; ++i) {
    ComputeType value = apply<kOperator>(Element::load(a[i]), Element::load(b[i]));
    if constexpr (kOperator == Operator::kAverage) value = static_cast<ComputeType>(value / ComputeType{2});
    out[i] = Element::store(value);
  }
}

template <typename Element, Operator kOperator>
void combine_block(typename Element::StoredType* out, const typename Element::StoredType* const* sources,
                   int sources_count, size_t begin, size_t count, bool round_each_step) {
  using ComputeType = typename Element::ComputeType;
  ComputeType values[kBlock];
  for (size_t i = 0; i < count; ++i) values[i] = Element::load(sources[0][begin + i]);
  for (int source = 1; source < sources_count; ++source) {
    const typename Element::StoredType* from = sources[source] + begin;
    for (size_t i = 0; i < count; ++i) values[i] = apply<kOperator>(values[i], Element::load(from[i]));
    if constexpr (!std::is_same_v<ComputeType, typename Element::StoredType>) {
      if (!round_each_step) continue;
      for (size_t i = 0; i < count; ++i) values[i] = Element::load(Element::store(values[i]));
    }
  }
  if constexpr (kOperator == Operator::kAverage) {
    const auto divisor = static_cast<ComputeType>(sources_count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<ComputeType>(values[i] / divisor);
  }
  for (size_t i = 0; i < count; ++i) out[begin + i] = Element::store(values[i]);
}

template <typename Element, Operator kOperator>
void combine(std::byte* out_bytes, const std::byte* const* source_bytes, int sources_count, size_t count,
             bool round_each_step) {
  using StoredType = typename Element::StoredType;
  auto* out = reinterpret_cast<StoredType*>(out_bytes);
  const auto* sources = reinterpret_cast<const StoredType* const*>(source_bytes);
  if (sources_count == 2) {
    combine_two<Element, kOperator>(out, sources[0], sources[1], count);
    return;
  }
  for (size_t begin = 0; begin < count; begin += kBlock) {
    combine_block<Element, kOperator>(out, sources, sources_count, begin, std::min(kBlock, count - begin),
                                      round_each_step);
  }
}

template <typename Element>
Combine find_operator(Operator op) {
  switch (op) {
    case Operator::kSum:
      return combine<Element, Operator::kSum>;
    case Operator::kAverage:
      return combine<Element, Operator::kAverage>;
    case Operator::kProduct:
      return combine<Element, Operator::kProduct>;
    case Operator::kMin:
      return combine<Element, Operator::kMin>;
    case Operator::kMax:
      return combine<Element, Operator::kMax>;
    default:
      break;
  }
  if constexpr (std::is_integral_v<typename Element::ComputeType>) {
    if (op == Operator::kAnd) return combine<Element, Operator::kAnd>;
    if (op == Operator::kOr) return combine<Element, Operator::kOr>;
    if (op == Operator::kXor) return combine<Element, Operator::kXor>;
  }
  return nullptr;
}

Combine find(DType dtype, Operator op) {
  switch (dtype) {
    case DType::kFloat32:
      return find_operator<NativeElement<float>>(op);
    case DType::kFloat64:
      return find_operator<NativeElement<double>>(op);
    case DType::kFloat16:
      return find_operator<HalfElement>(op);
    case DType::kBFloat16:
      return find_operator<BFloat16Element>(op);
    case DType::kInt8:
      return find_operator<NativeElement<int8_t>>(op);
    case DType::kUInt8:
      return find_operator<NativeElement<uint8_t>>(op);
    case DType::kInt32:
      return find_operator<NativeElement<int32_t>>(op);
    case DType::kInt64:
      return find_operator<NativeElement<int64_t>>(op);
  }
  return nullptr;
}

}  // namespace

extern const CombineLevel DDPRUN_COMBINE_LEVEL;
const CombineLevel DDPRUN_COMBINE_LEVEL{.name = DDPRUN_COMBINE_NAME, .find = find};

}  // namespace ddp::shm

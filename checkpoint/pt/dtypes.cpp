#include "checkpoint/pt/dtypes.h"

#include <algorithm>
#include <array>

namespace ddp::pt {
namespace {

constexpr std::string_view kUntyped = "UntypedStorage";

constexpr std::array kDTypes = {DTypeInfo{"float64", "DoubleStorage", 8},
                                DTypeInfo{"float32", "FloatStorage", 4},
                                DTypeInfo{"float16", "HalfStorage", 2},
                                DTypeInfo{"bfloat16", "BFloat16Storage", 2},
                                DTypeInfo{"int64", "LongStorage", 8},
                                DTypeInfo{"int32", "IntStorage", 4},
                                DTypeInfo{"int16", "ShortStorage", 2},
                                DTypeInfo{"int8", "CharStorage", 1},
                                DTypeInfo{"uint8", "ByteStorage", 1},
                                DTypeInfo{"bool", "BoolStorage", 1},
                                DTypeInfo{"complex64", "ComplexFloatStorage", 8},
                                DTypeInfo{"complex128", "ComplexDoubleStorage", 16},
                                DTypeInfo{"uint16", kUntyped, 2},
                                DTypeInfo{"uint32", kUntyped, 4},
                                DTypeInfo{"uint64", kUntyped, 8},
                                DTypeInfo{"float8_e4m3fn", kUntyped, 1},
                                DTypeInfo{"float8_e5m2", kUntyped, 1},
                                DTypeInfo{"float8_e4m3fnuz", kUntyped, 1},
                                DTypeInfo{"float8_e5m2fnuz", kUntyped, 1},
                                DTypeInfo{"float8_e8m0fnu", kUntyped, 1}};

}  // namespace

const DTypeInfo* dtype_by_name(std::string_view name) {
  const auto* found = std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& each) { return each.name == name; });
  return found != kDTypes.end() ? found : nullptr;
}

const DTypeInfo* dtype_by_storage(std::string_view storage) {
  if (storage == kUntyped) return nullptr;
  const auto* found =
      std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& each) { return each.storage == storage; });
  return found != kDTypes.end() ? found : nullptr;
}

}  // namespace ddp::pt

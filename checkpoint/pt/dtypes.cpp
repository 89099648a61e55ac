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
                                DTypeInfo{"complex32", kUntyped, 4},
                                DTypeInfo{"uint16", kUntyped, 2},
                                DTypeInfo{"uint32", kUntyped, 4},
                                DTypeInfo{"uint64", kUntyped, 8},
                                DTypeInfo{"float8_e4m3fn", kUntyped, 1},
                                DTypeInfo{"float8_e5m2", kUntyped, 1},
                                DTypeInfo{"float8_e4m3fnuz", kUntyped, 1},
                                DTypeInfo{"float8_e5m2fnuz", kUntyped, 1},
                                DTypeInfo{"float8_e8m0fnu", kUntyped, 1}};

// Quantized tensors are rebuilt by _rebuild_qtensor. Packed types (four or two bits) have storages of whole bytes.
constexpr std::array kQuantized = {DTypeInfo{"qint8", "QInt8Storage", 1}, DTypeInfo{"qint32", "QInt32Storage", 4},
                                   DTypeInfo{"quint8", "QUInt8Storage", 1}, DTypeInfo{"quint4x2", "QUInt4x2Storage", 1},
                                   DTypeInfo{"quint2x4", "QUInt2x4Storage", 1}};

constexpr std::array<std::string_view, 20> kOtherDTypes = {"float4_e2m1fn_x2",
                                                           "bits8",
                                                           "bits16",
                                                           "bits1x8",
                                                           "bits2x4",
                                                           "bits4x2",
                                                           "uint1",
                                                           "uint2",
                                                           "uint3",
                                                           "uint4",
                                                           "uint5",
                                                           "uint6",
                                                           "uint7",
                                                           "int1",
                                                           "int2",
                                                           "int3",
                                                           "int4",
                                                           "int5",
                                                           "int6",
                                                           "int7"};

}  // namespace

bool is_other_dtype(std::string_view name) {
  return std::find(kOtherDTypes.begin(), kOtherDTypes.end(), name) != kOtherDTypes.end() ||
         std::any_of(kQuantized.begin(), kQuantized.end(), [&](const auto& each) { return each.name == name; });
}

size_t storage_element_bytes(std::string_view name) {
  if (const auto* dtype = dtype_by_name(name)) return dtype->bytes;
  const auto* found =
      std::find_if(kQuantized.begin(), kQuantized.end(), [&](const auto& each) { return each.name == name; });
  return found != kQuantized.end() ? found->bytes : 0;
}

const DTypeInfo* other_dtype_by_storage(std::string_view storage) {
  const auto* found =
      std::find_if(kQuantized.begin(), kQuantized.end(), [&](const auto& each) { return each.storage == storage; });
  return found != kQuantized.end() ? found : nullptr;
}

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

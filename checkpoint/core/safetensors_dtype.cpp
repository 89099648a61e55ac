#include "checkpoint/core/safetensors_dtype.h"

#include <array>
#include <cstddef>

namespace ddp::safetensors {
namespace {

struct DTypeInfo {
  std::string_view name;
  size_t bytes;
};

// Indexed by DType.
constexpr std::array kDTypes = {
    DTypeInfo{"BOOL", 1},    DTypeInfo{"U8", 1},      DTypeInfo{"I8", 1},          DTypeInfo{"F8_E5M2", 1},
    DTypeInfo{"F8_E4M3", 1}, DTypeInfo{"F8_E8M0", 1}, DTypeInfo{"F8_E4M3FNUZ", 1}, DTypeInfo{"F8_E5M2FNUZ", 1},
    DTypeInfo{"I16", 2},     DTypeInfo{"U16", 2},     DTypeInfo{"F16", 2},         DTypeInfo{"BF16", 2},
    DTypeInfo{"I32", 4},     DTypeInfo{"U32", 4},     DTypeInfo{"F32", 4},         DTypeInfo{"C64", 8},
    DTypeInfo{"F64", 8},     DTypeInfo{"I64", 8},     DTypeInfo{"U64", 8},
};
static_assert(kDTypes.size() == static_cast<size_t>(DType::kU64) + 1);

}  // namespace

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::string_view dtype_name(DType dtype) {
  return kDTypes.at(static_cast<size_t>(dtype)).name;
}

size_t dtype_bytes(DType dtype) {
  return kDTypes.at(static_cast<size_t>(dtype)).bytes;
}

}  // namespace ddp::safetensors

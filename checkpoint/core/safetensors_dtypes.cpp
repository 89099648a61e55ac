#include "checkpoint/core/safetensors_dtypes.h"

#include <algorithm>
#include <array>

namespace ddp::safetensors {
namespace {

struct Name {
  DType dtype;
  std::string_view python;
};

constexpr std::array kNames = {Name{DType::kBool, "bool"},
                               Name{DType::kU8, "uint8"},
                               Name{DType::kI8, "int8"},
                               Name{DType::kF8E5M2, "float8_e5m2"},
                               Name{DType::kF8E4M3, "float8_e4m3fn"},
                               Name{DType::kF8E8M0, "float8_e8m0fnu"},
                               Name{DType::kF8E4M3FNUZ, "float8_e4m3fnuz"},
                               Name{DType::kF8E5M2FNUZ, "float8_e5m2fnuz"},
                               Name{DType::kI16, "int16"},
                               Name{DType::kU16, "uint16"},
                               Name{DType::kF16, "float16"},
                               Name{DType::kBF16, "bfloat16"},
                               Name{DType::kI32, "int32"},
                               Name{DType::kU32, "uint32"},
                               Name{DType::kF32, "float32"},
                               Name{DType::kC64, "complex64"},
                               Name{DType::kF64, "float64"},
                               Name{DType::kI64, "int64"},
                               Name{DType::kU64, "uint64"}};

}  // namespace

std::string_view python_name(DType dtype) {
  return std::ranges::find(kNames, dtype, &Name::dtype)->python;
}

std::optional<DType> dtype_of_python_name(std::string_view name) {
  const auto* found = std::ranges::find(kNames, name, &Name::python);
  if (found == kNames.end()) return std::nullopt;
  return found->dtype;
}

}  // namespace ddp::safetensors

// PyTorch's element types by their Python names, and the storage classes of pickles. No LibTorch.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ddp::pt {

struct DTypeInfo {
  std::string_view name;     ///< "float32"
  std::string_view storage;  ///< "FloatStorage"; "UntypedStorage" for newer types, whose tensors name the dtype
  size_t bytes = 0;
};

const DTypeInfo* dtype_by_name(std::string_view name);
const DTypeInfo* dtype_by_storage(std::string_view storage);

}  // namespace ddp::pt

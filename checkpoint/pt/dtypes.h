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

/// A dtype of PyTorch's whose tensors are not read: quantized ones, bits, and numbers of less than a byte.
bool is_other_dtype(std::string_view name);
/// Bytes per element of a storage of dtype `name`, of those too; 0 for an unknown name.
size_t storage_element_bytes(std::string_view name);

/// Such a dtype by the class of its storages, or null.
const DTypeInfo* other_dtype_by_storage(std::string_view storage);

}  // namespace ddp::pt

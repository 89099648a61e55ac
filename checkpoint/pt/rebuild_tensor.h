// The functions by which a pickle makes tensors. No LibTorch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/pt/value.h"

namespace ddp::pt {

/// torch._utils._rebuild_tensor(storage, offset, sizes, strides), _v2(…, requires_grad, hooks, metadata) and _v3(…,
/// dtype, metadata): tensors in strided memory. Throws FormatError when the arguments do not fit.
Value rebuild_tensor(Pickle& pickle, std::string_view function, const std::vector<Value>& arguments);
Value rebuild_tensor_v2(Pickle& pickle, std::string_view function, const std::vector<Value>& arguments);
Value rebuild_tensor_v3(Pickle& pickle, std::string_view function, const std::vector<Value>& arguments);

/// What torch._utils makes in other ways, described by `arguments`.
Value rebuild_sparse(Pickle& pickle, std::string_view function, const std::vector<Value>& arguments);
/// The CPU's copy of a tensor of another backend.
Value rebuild_from_cpu(Pickle& pickle, std::string_view function, const std::vector<Value>& arguments);

/// The call of `function` is refused.
[[noreturn]] void wrong_arguments(std::string_view function);

}  // namespace ddp::pt

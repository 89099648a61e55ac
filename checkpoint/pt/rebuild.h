// The functions that a pickle of PyTorch's may call, as functions on values. No LibTorch.
#pragma once

#include <string_view>

#include "checkpoint/pt/value.h"

namespace ddp::pt {

/// Whether a pickle may mention "module.name" at all: torch.load(weights_only=True) allows the same names.
bool is_allowed_global(std::string_view name);

/// The result of calling the global `function` with the tuple `arguments`. Tensors that are not strided memory (sparse,
/// quantized, nested, meta) become a value of Kind::kOtherTensor, so that the rest of the file can be read. Throws
/// FormatError when it may not be called or the arguments do not fit.
Value call_global(Pickle& pickle, const std::string& function, const Value& arguments);

/// A storage that a pickle refers to: ('storage', class, key, location, number of elements), and in files from before
/// PyTorch 1.6 one more: None or a view (key, offset, number of elements).
Value load_storage(Pickle& pickle, const Value& id);

}  // namespace ddp::pt

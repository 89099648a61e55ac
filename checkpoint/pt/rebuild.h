// The functions that a pickle of PyTorch's may call, as functions on values. No LibTorch.
#pragma once

#include <string_view>

#include "checkpoint/pt/value.h"

namespace ddp::pt {

/// Whether "module.name" is known here: torch.load(weights_only=True) allows the same names.
bool is_known_global(std::string_view name);

/// The value that the global `function` would return for the tuple `arguments`; it is not called. Tensors that are not
/// strided memory (sparse, quantized, nested, meta) become a value of Kind::kOtherTensor and what an unknown function
/// makes one of Kind::kForeign, so that the rest of the file can be read. Throws FormatError when the arguments do not
/// fit, for a known name that is not a function, and for an unknown function of a storage, which makes a tensor.
Value call_global(Pickle& pickle, const std::string& function, const Value& arguments);

/// A storage that a pickle refers to: ('storage', class, key, location, number of elements), and in files from before
/// PyTorch 1.6 one more: None or a view (key, offset, number of elements). Those files also have ('module', class,
/// file, source code) for the class of a module that was saved as a whole: a value of Kind::kForeign.
Value load_storage(Pickle& pickle, const Value& id);

}  // namespace ddp::pt

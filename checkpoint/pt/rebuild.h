// The functions that a pickle of PyTorch's may call, as functions on values. No LibTorch.
#pragma once

#include <string_view>

#include "checkpoint/pt/value.h"

namespace ddp::pt {

/// Whether a pickle may mention "module.name" at all.
bool is_allowed_global(std::string_view name);

/// The result of calling the global `function` with the tuple `arguments`. Throws FormatError when it may not be called
/// or the arguments do not fit.
Value call_global(Pickle& pickle, const std::string& function, const Value& arguments);

/// A storage that a pickle refers to: ('storage', class, key, location, number of elements).
Value load_storage(Pickle& pickle, const Value& id);

}  // namespace ddp::pt

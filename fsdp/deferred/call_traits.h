// What the schema of an operator says about a call that deferred_init() may have to repeat.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <optional>

namespace ddp::fsdp {

/// It changes how a tensor lies in memory, or reads that: no values.
bool touches_no_values(const c10::FunctionSchema& schema);

/// It lets a tensor have the memory of another one, without the mark of deferred_init().
bool shares_storage(const c10::FunctionSchema& schema);

/// It copies a tensor, in another dtype or on another device: what Module::to() calls.
bool copies_whole_tensor(const c10::FunctionSchema& schema);

/// It makes tensors of uninitialised memory.
bool leaves_values_undefined(const c10::FunctionSchema& schema);

/// It writes each element of its first argument and reads none.
bool overwrites_first_argument(const c10::FunctionSchema& schema);

/// It writes the argument.
bool writes_argument(const c10::FunctionSchema& schema, size_t argument);

/// The argument that is a random generator.
std::optional<size_t> generator_argument(const c10::FunctionSchema& schema);

/// It draws random numbers by calling other operators.
bool draws_by_other_operators(const c10::OperatorHandle& op);

/// The generator that a call uses which gives `argument` for one: that of its tensors' device by default.
at::Generator generator_of_call(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
                                size_t argument);

}  // namespace ddp::fsdp

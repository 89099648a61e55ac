#include "fsdp/deferred/call_traits.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace ddp::fsdp {
namespace {

using Names = std::span<const std::string_view>;

bool is_among(const c10::FunctionSchema& schema, Names names) {
  return std::ranges::find(names, std::string_view(schema.name())) != names.end();
}

constexpr std::array<std::string_view, 16> kOperatorsWithoutValues{
    "aten::set_data",     "aten::set_",        "aten::requires_grad_",
    "aten::detach_",      "aten::retain_grad", "aten::record_stream",
    "aten::is_same_size", "aten::is_pinned",   "aten::_has_compatible_shallow_copy_type",
    "aten::_version",     "aten::is_leaf",     "aten::sym_size",
    "aten::sym_stride",   "aten::sym_numel",   "aten::sym_storage_offset",
    "aten::is_set_to"};
constexpr std::array<std::string_view, 2> kCopyOperators{"aten::_to_copy", "aten::clone"};
constexpr std::array<std::string_view, 6> kUninitializedOperators{
    "aten::empty",     "aten::empty_like",        "aten::empty_strided",
    "aten::new_empty", "aten::new_empty_strided", "aten::empty_permuted"};
// The operators of this list that draw random numbers use only the generator.
constexpr std::array<std::string_view, 9> kOverwritingOperators{
    "aten::zero_",   "aten::fill_",   "aten::copy_",        "aten::normal_",    "aten::uniform_",
    "aten::random_", "aten::cauchy_", "aten::exponential_", "aten::log_normal_"};

c10::Device device_of_call(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor() && arguments[i].toTensor().defined()) return arguments[i].toTensor().device();
    if (schema.arguments()[i].name() == "device" && arguments[i].isDevice()) return arguments[i].toDevice();
  }
  return c10::kCPU;
}

}  // namespace

bool touches_no_values(const c10::FunctionSchema& schema) {
  return is_among(schema, kOperatorsWithoutValues);
}

bool shares_storage(const c10::FunctionSchema& schema) {
  return schema.name() == "aten::set_";
}

bool copies_whole_tensor(const c10::FunctionSchema& schema) {
  return is_among(schema, kCopyOperators);
}

bool leaves_values_undefined(const c10::FunctionSchema& schema) {
  return !schema.is_mutable() && is_among(schema, kUninitializedOperators);
}

bool overwrites_first_argument(const c10::FunctionSchema& schema) {
  return is_among(schema, kOverwritingOperators);
}

bool writes_argument(const c10::FunctionSchema& schema, size_t argument) {
  const c10::AliasInfo* alias = schema.arguments()[argument].alias_info();
  return alias != nullptr && alias->isWrite();
}

std::optional<size_t> generator_argument(const c10::FunctionSchema& schema) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].name() == "generator") return i;
  }
  return std::nullopt;
}

bool draws_by_other_operators(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::nondeterministic_seeded) && !generator_argument(op.schema()) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

at::Generator generator_of_call(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
                                size_t argument) {
  if (arguments[argument].isGenerator()) return arguments[argument].toGenerator();
  return at::globalContext().defaultGenerator(device_of_call(schema, arguments));
}

}  // namespace ddp::fsdp

#include "tests/support/device/rehearsal.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

#include <map>
#include <mutex>
#include <sstream>

#include "tests/support/device/kernel_thread.h"

namespace ddp::test::device {
namespace {

at::Tensor like(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  at::Tensor dummy = at::empty_strided(tensor.sizes(), tensor.strides(), at::TensorOptions(tensor.scalar_type()));
  // Ones where kernels want weights, zeros where they want indices.
  at::isFloatingType(tensor.scalar_type()) ? dummy.fill_(1) : dummy.zero_();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) dummy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return dummy;
}

c10::IValue dummy_of(const c10::IValue& value) {
  if (value.isTensor()) return like(value.toTensor());
  if (value.isTensorList()) {
    std::vector<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(like(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional(like(*tensor)) : std::nullopt);
    }
    return list;
  }
  if (value.isGenerator()) return at::detail::createCPUGenerator(0);
  return value;
}

Shape shape_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {.is_defined = true,
          .sizes = tensor.sizes().vec(),
          .strides = tensor.strides().vec(),
          .dtype = tensor.scalar_type()};
}

void describe(std::ostream& text, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    text << "none;";
    return;
  }
  text << tensor.scalar_type() << tensor.sizes() << tensor.strides()
       << tensor.unsafeGetTensorImpl()->is_wrapped_number() << ';';
}

void describe(std::ostream& text, const c10::IValue& value) {
  if (value.isTensor()) {
    describe(text, value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) describe(text, tensor);
    text << '|';
  } else if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector()) describe(text, tensor.value_or(at::Tensor()));
    text << '|';
  } else if (!value.isGenerator()) {
    text << value << ';';
  }
}

std::string key_of(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  std::ostringstream text;
  text << op.operator_name() << ' ';
  for (const c10::IValue& argument : arguments) describe(text, argument);
  return text.str();
}

struct Cache {
  std::mutex mutex{};
  std::map<std::string, Shapes> known{};
};

Cache& cache() {
  static auto* const the_cache = new Cache();
  return *the_cache;
}

}  // namespace

Shapes shapes_of_results(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  const std::string key = key_of(op, arguments);
  {
    const std::lock_guard lock(cache().mutex);
    if (const auto found = cache().known.find(key); found != cache().known.end()) return found->second;
  }
  const KernelThread modes;
  torch::jit::Stack stack;
  for (const c10::IValue& argument : arguments) stack.push_back(dummy_of(argument));
  op.callBoxed(stack);
  Shapes shapes;
  for (const c10::IValue& result : stack) {
    auto& of_result = shapes.emplace_back();
    if (result.isTensor()) {
      of_result.push_back(shape_of(result.toTensor()));
    } else if (result.isTensorList()) {
      for (const at::Tensor& tensor : result.toTensorVector()) of_result.push_back(shape_of(tensor));
    }
  }
  const std::lock_guard lock(cache().mutex);
  return cache().known[key] = shapes;
}

Shape shape_of_output(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, size_t index) {
  const KernelThread modes;
  torch::jit::Stack stack;
  for (const c10::IValue& argument : arguments) stack.push_back(dummy_of(argument));
  const at::Tensor output = stack.at(index).toTensor();
  op.callBoxed(stack);
  return shape_of(output);
}

}  // namespace ddp::test::device

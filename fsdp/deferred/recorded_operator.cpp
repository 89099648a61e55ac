#include "fsdp/deferred/recorded_operator.h"

#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <stdexcept>

namespace ddp::fsdp {
namespace {

c10::Storage& memory_of(const RecordedTensor& tensor, ReplayMemory& memory) {
  const auto [found, is_new] = memory.try_emplace(tensor.storage);
  if (is_new) {
    c10::Allocator* allocator = c10::GetAllocator(tensor.device.type());
    found->second = c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage_bytes,
                                 allocator->allocate(tensor.storage_bytes), allocator, /*resizable=*/true);
  }
  return found->second;
}

at::Tensor tensor_of(const RecordedTensor& recorded, ReplayMemory& memory) {
  const auto options = at::TensorOptions(recorded.device).dtype(recorded.dtype);
  return at::empty({0}, options).set_(memory_of(recorded, memory), recorded.offset, recorded.sizes, recorded.strides);
}

at::Tensor result_at(c10::ArrayRef<c10::IValue> results, const TensorPlace& place) {
  const c10::IValue& value = results.at(place.index);
  return place.element ? value.toTensorVector().at(*place.element) : value.toTensor();
}

bool is_repeatable(const c10::IValue& value) {
  if (value.isList()) {
    if (value.isTensorList()) return true;
    return std::ranges::all_of(value.toListRef(), [](const c10::IValue& one) { return is_repeatable(one); });
  }
  return value.isNone() || value.isTensor() || value.isScalar() || value.isString() || value.isDevice() ||
         value.isGenerator();
}

}  // namespace

std::vector<std::pair<TensorPlace, at::Tensor>> tensors_in(c10::ArrayRef<c10::IValue> values) {
  std::vector<std::pair<TensorPlace, at::Tensor>> found;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].isTensor()) {
      if (values[i].toTensor().defined()) found.push_back({{.index = i}, values[i].toTensor()});
    } else if (values[i].isList() && !values[i].isIntList() && !values[i].isDoubleList() && !values[i].isBoolList()) {
      const std::vector<c10::IValue> list = values[i].toListRef().vec();
      for (size_t j = 0; j < list.size(); ++j) {
        if (list[j].isTensor() && list[j].toTensor().defined()) {
          found.push_back({{.index = i, .element = j}, list[j].toTensor()});
        }
      }
    }
  }
  return found;
}

void put_tensor(std::vector<c10::IValue>& values, const TensorPlace& place, const at::Tensor& tensor) {
  c10::IValue& value = values.at(place.index);
  if (!place.element) {
    value = tensor;
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> copy = value.toTensorList().copy();
    copy.set(*place.element, tensor);
    value = std::move(copy);
  } else {
    c10::List<c10::IValue> copy = value.toList().copy();
    copy.set(*place.element, tensor);
    value = std::move(copy);
  }
}

bool are_repeatable(c10::ArrayRef<c10::IValue> values) {
  return std::ranges::all_of(values, is_repeatable);
}

void fill_with_zeros(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  const at::NoGradGuard no_grad;
  // Fills the whole storage, which may have gaps between the tensor's elements.
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  at::empty({0}, at::TensorOptions(tensor.device()).dtype(at::kByte)).set_(tensor.storage(), 0, {bytes}, {1}).zero_();
}

void repeat(const RecordedOperator& call, ReplayMemory& memory) {
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::DeferredInit);
  const at::NoGradGuard no_grad;
  torch::jit::Stack stack = call.arguments;
  for (const RecordedTensor& recorded : call.tensors) put_tensor(stack, recorded.place, tensor_of(recorded, memory));
  if (call.generator_index) stack.at(*call.generator_index) = call.generator.clone();
  call.op.callBoxed(stack);
  for (const RecordedResult& result : call.results) {
    const at::Tensor tensor = result_at(stack, result.place);
    if (call.leaves_values_undefined) fill_with_zeros(tensor);
    memory.insert_or_assign(result.storage, tensor.storage());
  }
}

}  // namespace ddp::fsdp

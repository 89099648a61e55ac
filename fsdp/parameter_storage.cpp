#include "fsdp/parameter_storage.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <stdexcept>
#include <string>

#include "base/rank_prefix.h"
#include "fsdp/deferred/recorder.h"

namespace ddp::fsdp {
namespace {

// A dispatch key that is reserved for code outside of LibTorch. It comes before autocast and autograd, so both receive
// parameters with values.
constexpr auto kKey = c10::DispatchKey::DeferredInit;

void add(ParameterUse& use, const c10::TensorImpl* tensor) {
  if (tensor == nullptr) return;
  if (ParameterStorage* storage = parameter_storage_of(*tensor)) {
    use.parameters.push_back(storage);
  } else if (tensor->key_set().has(kKey)) {
    use.is_deferred = true;
  } else if (!use.has_differentiable_input && tensor->requires_grad()) {
    use.has_differentiable_input = true;
  }
}

void add(ParameterUse& use, const c10::IValue& value) {
  if (value.isTensor()) return add(use, value.unsafeToTensorImpl());
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) add(use, tensor.unsafeGetTensorImpl());
  } else if (value.isList()) {  // of optional tensors
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) add(use, element.unsafeToTensorImpl());
    }
  }
}

// Operators that return a view do not read the values. Operators that may copy (reshape, contiguous, to) call other
// operators for it.
bool returns_alias(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return !returns.empty() && returns.front().alias_info() != nullptr && !returns.front().alias_info()->isWrite();
}

ParameterStorage* written_by(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite() || !arguments[i].isTensor()) continue;
    if (ParameterStorage* storage = parameter_storage_of(*arguments[i].unsafeToTensorImpl())) return storage;
  }
  return nullptr;
}

void fill_parameters(ParameterUse& use, const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  use.written = schema.is_mutable() ? written_by(schema, arguments) : nullptr;
  ParameterOwner* owner = use.parameters.front()->owner();
  for (const ParameterStorage* storage : use.parameters) {
    if (storage->owner() == owner) continue;
    throw std::logic_error(rank_prefix() + "the operator " + schema.name() +
                           " is called with parameters of two models of fully_shard(), or of a model whose wrapper was "
                           "destroyed. Wrap one model that contains both.");
  }
  if (owner == nullptr) {
    throw std::logic_error(rank_prefix() + "the operator " + schema.name() +
                           " is called with a parameter of a model whose fully_shard() wrapper was destroyed, and its "
                           "values with it. Keep the object that fully_shard() returned, and save its parameters.");
  }
  owner->before_use(use);
}

std::shared_ptr<Recorder> recorder_for(const ParameterUse& use, c10::ArrayRef<c10::IValue> arguments) {
  const std::shared_ptr<Recorder>& of_thread = thread_recorder();
  return of_thread == nullptr && use.is_deferred ? recorder_of(arguments) : of_thread;
}

void before_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto next = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  if (returns_alias(schema)) return op.redispatchBoxed(next, stack);
  const auto arguments = torch::jit::last(*stack, schema.arguments().size());
  ParameterUse use;
  use.op = &op;
  for (const c10::IValue& argument : arguments) add(use, argument);
  if (!use.parameters.empty()) fill_parameters(use, schema, arguments);
  if (const auto recorder = recorder_for(use, arguments)) return recorder->call(op, next, stack);
  // The operators that this operator calls have the same parameters.
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  op.redispatchBoxed(next, stack);
}

}  // namespace

void register_operator_kernel() {
  static const torch::Library library = [] {
    torch::Library all(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    all.fallback(torch::CppFunction::makeFromBoxedFunction<&before_operator>());
    return all;
  }();
}

ParameterStorage::ParameterStorage(ParameterOwner* owner, int unit, int parameter, size_t bytes, c10::Device device,
                                   c10::Allocator* allocator)
    : c10::StorageImpl(use_byte_size_t(), c10::SymInt(static_cast<int64_t>(bytes)), at::DataPtr(nullptr, device),
                       allocator,
                       /*resizable=*/false),
      owner_(owner),
      unit_(unit),
      parameter_(parameter) {
  set_refuses_access(true);
}

// Has an effect since LibTorch 2.15. In earlier versions such an access finds a null pointer.
void ParameterStorage::set_refuses_access(bool refuses) {
  const auto set = [refuses](auto& storage) {
    if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); }) {
      if (!refuses) return storage.clear_data_ptr_access_error_msg_();
      storage.release_data_and_set_meta_custom_data_ptr_error_msg_(
          rank_prefix() +
          "fully_shard(): a parameter of the model is read outside of its forward and backward, where "
          "each rank has only a part of it. Read and save whole parameters by full_parameter().");
    }
  };
  set(static_cast<c10::StorageImpl&>(*this));
}

void ParameterStorage::allocate() {
  if (has_memory_) return;
  set_refuses_access(false);
  set_data_ptr_noswap(allocator()->allocate(nbytes()));
  has_memory_ = true;
}

void ParameterStorage::free() {
  if (!has_memory_) return;
  set_data_ptr_noswap(at::DataPtr(nullptr, device()));
  set_refuses_access(true);
  has_memory_ = false;
}

void move_into_storage(const at::Tensor& parameter, const c10::intrusive_ptr<ParameterStorage>& storage,
                       at::ScalarType dtype) {
  register_operator_kernel();
  // The keys of a tensor on the storage's device, since the parameter may move to another device.
  const c10::DispatchKeySet keys = at::empty({0}, parameter.options().device(storage->device())).key_set();
  at::Tensor moved =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), keys.add(kKey), at::scalarTypeToTypeMeta(dtype));
  moved.unsafeGetTensorImpl()->set_sizes_and_strides(parameter.sizes(), parameter.strides());
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  parameter.set_data(moved);
}

ParameterStorage* parameter_storage_of(const c10::TensorImpl& tensor) {
  if (!tensor.key_set().has(kKey) || !tensor.has_storage()) return nullptr;
  return dynamic_cast<ParameterStorage*>(tensor.unsafe_storage().unsafeGetStorageImpl());
}

}  // namespace ddp::fsdp

#include "ddprun/ddp/script_distributed_data_parallel.h"

#include <functional>
#include <stdexcept>
#include <typeinfo>
#include <utility>

namespace ddp {
namespace {

// Python's Embedding and EmbeddingBag keep `sparse` as a constant of their class.
bool has_sparse_weight(const torch::jit::Module& module) {
  const auto slot = module.type()->findConstantSlot("sparse");
  const c10::IValue value = slot ? module.type()->getConstant(*slot) : module.attr("sparse", false);
  return value.isBool() && value.toBool() && module.hasattr("weight");
}

std::vector<NamedTensor> buffers_of(const torch::jit::Module& module) {
  std::vector<NamedTensor> buffers;
  for (const auto& item : module.named_buffers()) buffers.push_back({item.name, item.value});
  return buffers;
}

/// Calls `use` for each tensor in `value`, in order. Returns false when `value` contains an object: only the object's
/// class knows its tensors.
bool visit_tensors_in(const c10::IValue& value, const std::function<void(const at::Tensor&)>& use) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) use(value.toTensor());
    return true;
  }
  bool is_known = !value.isObject();
  if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements())
      is_known = visit_tensors_in(element, use) && is_known;
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) is_known = visit_tensors_in(element, use) && is_known;
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) is_known = visit_tensors_in(entry.value(), use) && is_known;
  }
  return is_known;
}

/// `value` with each tensor replaced by the result of `replacement`, which is called in the order of
/// visit_tensors_in().
c10::IValue with_tensors(const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& replacement) {
  if (value.isTensor()) return value.toTensor().defined() ? replacement(value.toTensor()) : value;
  if (value.isTuple()) {
    std::vector<c10::IValue> elements;
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      elements.push_back(with_tensors(element, replacement));
    }
    return c10::ivalue::Tuple::createNamed(std::move(elements), value.toTuple()->type<c10::TupleType>());
  }
  if (value.isList()) {
    c10::impl::GenericList list(value.toList().elementType());
    for (const c10::IValue& element : value.toListRef()) list.push_back(with_tensors(element, replacement));
    return list;
  }
  if (value.isGenericDict()) {
    const c10::impl::GenericDict given = value.toGenericDict();
    c10::impl::GenericDict dict(given.keyType(), given.valueType());
    for (const auto& entry : given) dict.insert(entry.key(), with_tensors(entry.value(), replacement));
    return dict;
  }
  return value;
}

}  // namespace

ModelTensors tensors_of(const torch::jit::Module& module) {
  ModelTensors model{.buffers = [module] { return buffers_of(module); }, .name = module.type()->name()->name()};
  for (const auto& item : module.named_parameters()) model.parameters.push_back({item.name, item.value});
  for (const auto& item : module.named_modules()) {
    if (!has_sparse_weight(item.value)) continue;
    model.sparse_gradients.push_back(item.name.empty() ? "weight" : item.name + ".weight");
  }
  return model;
}

ScriptDistributedDataParallel::ScriptDistributedDataParallel(torch::jit::Module module, const GroupHandle& group,
                                                             const DdpOptions& options)
    : UntypedDistributedDataParallel(tensors_of(module), group, options), module_(std::move(module)) {}

c10::IValue ScriptDistributedDataParallel::forward(std::vector<c10::IValue> inputs, const torch::jit::Kwargs& kwargs) {
  before_forward();
  const c10::IValue output = module_.forward(std::move(inputs), kwargs);
  OutputTensors found;
  if (core().looks_at_outputs()) {
    found.known = visit_tensors_in(output, [&](const at::Tensor& tensor) { found.tensors.push_back(tensor); });
  }
  if (!found.known && core().wants_outputs()) {
    throw std::logic_error(
        who(core().join_group().info()) +
        ": DistributedDataParallel with find_unused_parameters or static_graph has to see the tensors in the forward's "
        "output, but this output contains an object of a class, of type " +
        output.type()->repr_str() + ": return tensors, in tuples, lists, dicts or optionals");
  }
  const std::vector<at::Tensor> replacements = core().after_forward(found, typeid(output));
  if (replacements.empty()) return output;
  size_t next = 0;
  return with_tensors(output, [&](const at::Tensor& tensor) {
    const at::Tensor& replacement = replacements.at(next++);
    return replacement.defined() ? replacement : tensor;
  });
}

}  // namespace ddp

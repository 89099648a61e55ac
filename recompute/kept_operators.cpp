#include "recompute/kept_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "base/joined.h"
#include "base/rank_prefix.h"
#include "ddprun/detail/recompute/region.h"
#include "recompute/operator_log.h"
#include "recompute/saved_tensor_mode.h"

namespace ddp::recompute {
namespace {

// True while an observed operator runs. The operators that it calls are part of it and are not observed.
thread_local bool is_in_operator = false;

// Called between autograd's part of an operator and its computation. LibTorch does not call this function for operators
// that other operators call, because it excludes autograd and the dispatch keys after it there.
void observe(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto call = [&] { op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack); };
  SavedTensorMode* mode = current_mode();
  if (mode == nullptr || is_in_operator) return call();
  mode->run_operator(op, *stack, [&] {
    const OperatorLogPause pause;  // the second run does not call the operators inside this one
    struct Inside {
      Inside() { is_in_operator = true; }
      ~Inside() { is_in_operator = false; }
    } const inside;
    call();
  });
}

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw std::invalid_argument(rank_prefix() + "checkpoint(): must_save names '" + name + "'" + why);
}

c10::OperatorName parsed(const std::string& name) {
  const size_t scope = name.find("::");
  if (scope == std::string::npos) refuse(name, ": expected a namespace and a name, such as 'aten::addmm'");
  const size_t dot = name.find('.', scope);
  return dot == std::string::npos ? c10::OperatorName(name, "")
                                  : c10::OperatorName(name.substr(0, dot), name.substr(dot + 1));
}

c10::OperatorHandle found(const std::string& name) {
  const c10::OperatorName wanted = parsed(name);
  if (const auto op = c10::Dispatcher::singleton().findSchema(wanted)) return *op;
  std::vector<std::string> overloads;
  for (const c10::OperatorName& other : c10::Dispatcher::singleton().getAllOpNames()) {
    if (other.name == wanted.name) overloads.push_back(c10::toString(other));
  }
  std::ranges::sort(overloads);
  refuse(name, overloads.empty() ? ", which LibTorch does not have"
                                 : ", which has overloads: name one or several of " + detail::joined(overloads));
}

void check(const std::string& name, const c10::OperatorHandle& op) {
  const auto shares_memory = [](const c10::Argument& argument) { return argument.alias_info() != nullptr; };
  const c10::FunctionSchema& schema = op.schema();
  if (std::ranges::any_of(schema.arguments(), shares_memory) || std::ranges::any_of(schema.returns(), shares_memory) ||
      op.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView)) {
    refuse(name, ", which changes its arguments or returns their memory: there is nothing to keep");
  }
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    refuse(name,
           ", which consists of other operators: name those that appear in autograd's nodes (aten::linear is "
           "aten::addmm or aten::mm, aten::matmul is aten::mm or aten::bmm, aten::conv2d is aten::convolution)");
  }
}

// The operators for which `observe` is called. They stay registered until the process ends, because other threads may
// be calling them.
struct Observed {
  static Observed& instance() {
    static auto* const observed = new Observed;
    return *observed;
  }

  void add(const std::string& name) {
    const c10::OperatorName wanted = parsed(name);
    const std::lock_guard lock(mutex);
    if (known.contains(wanted)) return;
    check(name, found(name));
    const size_t scope = name.find("::");
    libraries.emplace_back(torch::Library::IMPL, name.substr(0, scope), c10::DispatchKey::ADInplaceOrView, __FILE__,
                           __LINE__);
    libraries.back().impl(name.substr(scope + 2).c_str(), torch::CppFunction::makeFromBoxedFunction<&observe>());
    known.insert(wanted);
  }

  std::mutex mutex;
  std::deque<torch::Library> libraries;  // one registration each
  std::unordered_set<c10::OperatorName> known;
};

// These operators return memory of an argument, but their schemas do not say so. Their results therefore have separate
// version counters.
constexpr std::array kUndeclaredViews{"aten::_unsafe_view", "aten::unsafe_split.Tensor",
                                      "aten::unsafe_split_with_sizes"};

// Returns another tensor with the same memory and version counter, but without a graph.
at::Tensor detached_alias(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.tensor_data() : tensor;
}

// Returns `value` with `change` applied to its tensors.
template <typename Change>
c10::IValue with_tensors(const c10::IValue& value, const Change& change) {
  if (value.isTensor()) return change(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(change(tensor));
  return list;
}

uint32_t counted_version(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<uint32_t>(tensor._version()) : 0;
}

}  // namespace

KeptOperators::KeptOperators(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    Observed::instance().add(name);
    names_.push_back(parsed(name));
  }
  if (names.empty()) return;
  for (const char* name : kUndeclaredViews) Observed::instance().add(name);
}

bool KeptOperators::has(const c10::OperatorHandle& op) const {
  return std::ranges::find(names_, op.operator_name()) != names_.end();
}

void KeptOperators::note(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                         const std::vector<c10::Device>* devices) {
  if (has(op)) return keep(op, stack, devices);
  for (const c10::IValue& result : torch::jit::last(stack, op.schema().returns().size())) {
    with_tensors(result, [this](const at::Tensor& tensor) {
      watch(tensor);
      return tensor;
    });
  }
}

// Records the tensor if it shares memory with a stored result.
void KeptOperators::watch(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  for (Call& call : calls_) {
    const auto shares = [&](const at::Tensor& kept) {
      return kept.defined() && kept.has_storage() && kept.is_alias_of(tensor);
    };
    const bool is_of_call = std::ranges::any_of(call.results, [&](const c10::IValue& result) {
      if (result.isTensor()) return shares(result.toTensor());
      return result.isTensorList() && std::ranges::any_of(result.toTensorVector(), shares);
    });
    if (is_of_call) call.others.emplace_back(detached_alias(tensor), counted_version(tensor));
  }
}

void KeptOperators::keep(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                         const std::vector<c10::Device>* devices) {
  Call call{.name = op.operator_name()};
  const auto keep_one = [&call](const at::Tensor& tensor) {
    call.versions.push_back(counted_version(tensor));
    return detached_alias(tensor);
  };
  for (const c10::IValue& result : torch::jit::last(stack, op.schema().returns().size())) {
    call.results.push_back(with_tensors(result, keep_one));
  }
  if (devices != nullptr && op.hasTag(at::Tag::nondeterministic_seeded)) {
    call.random_states = RandomStates::current(*devices);
  }
  calls_.push_back(std::move(call));
}

void KeptOperators::put(size_t index, const c10::OperatorHandle& op, torch::jit::Stack& stack) const {
  const std::string name = c10::toString(op.operator_name());
  if (index >= calls_.size() || calls_[index].name != op.operator_name()) {
    throw RecomputeError(rank_prefix() + "checkpoint(): call " + std::to_string(index) +
                         " (counted from 0) of an operator in must_save was " +
                         (index < calls_.size() ? "one of " + c10::toString(calls_[index].name) : "not there") +
                         " in the forward and is one of " + name +
                         " in the recomputation. A region must call the same operators in both.");
  }
  const Call& call = calls_[index];
  for (const auto& [other, version] : call.others) {
    if (counted_version(other) != version) refuse_changed(name);
  }
  torch::jit::drop(stack, op.schema().arguments().size());
  auto version = call.versions.begin();
  for (const c10::IValue& result : call.results) {
    stack.push_back(with_tensors(result, [&](const at::Tensor& tensor) {
      if (counted_version(tensor) != *version++) refuse_changed(name);
      return detached_alias(tensor);
    }));
  }
  if (call.random_states) call.random_states->apply();
}

void KeptOperators::refuse_changed(const std::string& name) {
  throw RecomputeError(rank_prefix() + "checkpoint(): a result of " + name +
                       ", which must_save keeps, was changed in place after it was computed. Use the operator that "
                       "returns a new tensor, or leave " +
                       name + " out of must_save.");
}

}  // namespace ddp::recompute

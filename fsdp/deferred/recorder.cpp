#include "fsdp/deferred/recorder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/crc32c.h"
#include "base/rank_prefix.h"
#include "fsdp/deferred/call_traits.h"
#include "fsdp/deferred/replay.h"

namespace ddp::fsdp {
namespace {

// A storage that is written more often keeps its memory: each write costs a checksum.
constexpr uint64_t kMaxChecksums = 64;

uint32_t checksum_of(const DeferredStorage& storage) {
  if (storage.device().is_cpu()) return crc32c(storage.data(), storage.nbytes());
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::DeferredInit);
  const c10::Storage held(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(const_cast<DeferredStorage*>(&storage)));
  const at::Tensor host = at::empty({0}, at::TensorOptions(storage.device()).dtype(at::kByte))
                              .set_(held, 0, {static_cast<int64_t>(storage.nbytes())}, {1})
                              .cpu();
  return crc32c(host.const_data_ptr(), host.nbytes());
}

at::Tensor constant_of(const at::Tensor& tensor) {
  at::Tensor copy = tensor.detach().clone();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

// The program may set another default before the call is repeated.
void fix_default_dtype(RecordedOperator& call, at::ScalarType dtype) {
  const auto& arguments = call.op.schema().arguments();
  for (size_t i = 0; i < arguments.size() && call.tensors.empty(); ++i) {
    if (arguments[i].name() == "dtype" && call.arguments[i].isNone()) call.arguments[i] = dtype;
  }
}

std::string text_of(const DeferredStorage& storage) {
  return storage.name.empty() ? "a tensor of the model" : storage.name;
}

}  // namespace

Recorder::Recorder(size_t smallest_bytes, size_t most_resident_bytes)
    : smallest_bytes_(std::max<size_t>(1, smallest_bytes)), max_resident_bytes_(most_resident_bytes) {}

void Recorder::call(const c10::OperatorHandle& op, c10::DispatchKeySet next, torch::jit::Stack* stack) {
  if (draws_by_other_operators(op)) return op.redispatchBoxed(next, stack);
  if (touches_no_values(op.schema())) {
    if (shares_storage(op.schema())) keep_all(torch::jit::last(*stack, op.schema().arguments().size()));
    const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::DeferredInit);
    return op.redispatchBoxed(next, stack);
  }
  const std::lock_guard lock(mutex_);
  OperatorCall call(*this, op, *stack);
  check_allowed(call);
  load_arguments(call);
  const std::shared_ptr<RecordedOperator> node = recorded(call);
  try {
    const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::DeferredInit);
    op.redispatchBoxed(next, stack);
  } catch (...) {
    for (const OperatorCall::Argument& one : call.arguments) {
      if (one.storage == nullptr) continue;
      if (!one.has_new_memory) {
        watch(*one.storage);
        continue;
      }
      unlist(*one.storage);
      one.storage->free_memory();
    }
    throw;
  }
  note_writes(call, node);
  std::vector<DeferredStorage*> in_use = note_results(call, node, *stack);
  for (DeferredStorage* storage : call.storages()) in_use.push_back(storage);
  for (DeferredStorage* storage : in_use) watch(*storage);
  // The caller may still write into the memory of these tensors without an operator, as at::tensor() does.
  free_least_used(in_use);
}

// True within deferred_init(), and for calls that initialise, move or convert a model after it: init functions and
// to().
bool Recorder::is_part_of_construction(const OperatorCall& call) {
  return thread_recorder() != nullptr || call.writes() || copies_whole_tensor(call.op.schema());
}

void Recorder::check_allowed(const OperatorCall& call) const {
  if (is_part_of_construction(call)) return;
  for (const OperatorCall::Argument& one : call.arguments) {
    const DeferredStorage* storage = deferred_storage_of(*one.tensor.unsafeGetTensorImpl());
    if (storage == nullptr || storage->is_materialized || storage->name.empty()) continue;
    throw std::logic_error(rank_prefix() + "deferred_init(): the operator " + call.op.schema().name() + " uses " +
                           storage->name +
                           ", which has no memory yet. Call fully_shard() and use what it returns, or " +
                           "materialize() to have the whole model on each rank.");
  }
}

void Recorder::load_arguments(OperatorCall& call) {
  for (DeferredStorage* storage : call.foreign) {
    storage->recorder().compute(*storage);
    storage->recorder().keep(*storage);
  }
  for (OperatorCall::Argument& one : call.arguments) {
    if (one.storage == nullptr) continue;
    if (!one.is_overwritten) {
      compute(*one.storage);
      keep_if_accessed_past_operators(*one.storage);
      // The storage has no name, so it belongs to no module, and nothing would materialize it later.
      if (thread_recorder() == nullptr && one.storage->name.empty() && !one.is_written) keep(*one.storage);
    } else if (one.storage->has_memory()) {
      if (one.storage->end_watch()) keep_always(*one.storage);
    } else {
      one.storage->allocate_memory();
      one.has_new_memory = true;
    }
    use(*one.storage);
  }
}

std::shared_ptr<RecordedOperator> Recorder::recorded(const OperatorCall& call) const {
  if (!is_part_of_construction(call) || !call.is_recordable()) return nullptr;
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::DeferredInit);
  const at::NoGradGuard no_grad;
  auto node = std::make_shared<RecordedOperator>(call.op);
  node->arguments = call.values.vec();
  for (const OperatorCall::Argument& one : call.arguments) {
    const bool is_constant = one.storage == nullptr;
    put_tensor(node->arguments, one.place, is_constant ? constant_of(one.tensor) : at::Tensor());
    if (is_constant) continue;
    node->tensors.push_back({.place = one.place,
                             .storage = one.storage->number(),
                             .storage_bytes = one.storage->nbytes(),
                             .last_writer = one.is_overwritten ? nullptr : one.storage->log->last_writer,
                             .sizes = one.tensor.sizes().vec(),
                             .strides = one.tensor.strides().vec(),
                             .offset = one.tensor.storage_offset(),
                             .dtype = one.tensor.scalar_type(),
                             .device = one.tensor.device()});
    const auto& writer = node->tensors.back().last_writer;
    if (writer) node->depth = std::max(node->depth, writer->depth + 1);
  }
  node->leaves_values_undefined = leaves_values_undefined(call.op.schema());
  if (const auto index = generator_argument(call.op.schema())) {
    node->generator_index = index;
    at::Generator generator = generator_of_call(call.op.schema(), call.values, *index);
    const std::lock_guard lock(generator.mutex());
    node->generator = generator.clone();
  }
  return node;
}

void Recorder::note_writes(const OperatorCall& call, const std::shared_ptr<RecordedOperator>& node) {
  if (node) node->number = ++calls_;
  for (DeferredStorage* storage : call.foreign) storage->recorder().keep(*storage);
  for (const OperatorCall::Argument& one : call.arguments) {
    if (!one.is_written || one.storage == nullptr) continue;
    DeferredStorage& storage = *one.storage;
    const bool was_resized = storage.nbytes() != one.storage_bytes;
    if (!node || was_resized || storage.stays_in_memory || storage.is_materialized ||
        (!storage.log && !one.is_overwritten)) {
      keep(storage);
      continue;
    }
    if (!storage.log) storage.log.emplace();
    storage.log->last_writer = node;
    note_checksum(storage);
    use(storage);
  }
}

std::vector<DeferredStorage*> Recorder::note_results(const OperatorCall& call,
                                                     const std::shared_ptr<RecordedOperator>& node,
                                                     torch::jit::Stack& stack) {
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::DeferredInit);
  const c10::ArrayRef<c10::IValue> results = torch::jit::last(stack, call.op.schema().returns().size());
  const bool leaves_undefined = leaves_values_undefined(call.op.schema());
  std::vector<DeferredStorage*> made;
  std::string name;  // of the tensor that was copied
  if (thread_recorder() == nullptr) {
    for (const auto* storage : call.storages()) name = name.empty() ? storage->name : name;
  }
  for (const auto& [place, tensor] : tensors_in(results)) {
    if (!is_plain(tensor) || as_deferred(tensor.storage()) != nullptr) continue;
    // The storage belongs to this recorder only if the list and the stack hold the only references to it.
    if (tensor.storage().use_count() != 1) continue;
    if (leaves_undefined) fill_with_zeros(tensor);
    if (node && tensor.storage().nbytes() >= smallest_bytes_) {
      made.push_back(adopt(tensor, node, place, name));
    }
  }
  return made;
}

DeferredStorage* Recorder::adopt(const at::Tensor& tensor, const std::shared_ptr<RecordedOperator>& node,
                                 const TensorPlace& place, const std::string& name) {
  c10::StorageImpl& old = *tensor.storage().unsafeGetStorageImpl();
  const size_t bytes = old.nbytes();
  at::DataPtr memory = old.set_data_ptr(at::DataPtr(nullptr, old.device()));
  auto storage = c10::make_intrusive<DeferredStorage>(std::move(memory), bytes, shared_from_this(), ++storages_);
  fix_default_dtype(*node, tensor.scalar_type());
  node->results.push_back({.place = place, .storage = storage->number()});
  storage->name = name;
  storage->log.emplace();
  storage->log->last_writer = node;
  note_checksum(*storage);
  at::Tensor marked = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), tensor.key_set().add(c10::DispatchKey::DeferredInit), tensor.dtype());
  marked.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
  marked.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  tensor.set_data(marked);
  use(*storage);
  return storage.get();
}

void Recorder::compute(DeferredStorage& storage) {
  const std::lock_guard lock(mutex_);
  if (storage.has_memory()) return;
  const c10::Storage computed = replay(storage.number(), storage.log->last_writer);
  if (computed.nbytes() != storage.nbytes()) {
    throw std::runtime_error(rank_prefix() + "deferred_init(): computing " + text_of(storage) +
                             " again gave a different size. Construct this model without deferred_init().");
  }
  storage.put_values(computed.unsafeGetStorageImpl()->set_data_ptr(at::DataPtr(nullptr, storage.device())));
  if (checksum_of(storage) == storage.log->checksum) return use(storage);
  storage.free_memory();
  throw std::runtime_error(rank_prefix() + "deferred_init(): computing " + text_of(storage) +
                           " again gave different values: an operator of its construction is not deterministic. "
                           "Construct this model without deferred_init().");
}

void Recorder::note_checksum(DeferredStorage& storage) {
  storage.log->hashed_bytes += storage.nbytes();
  if (storage.log->hashed_bytes > kMaxChecksums * storage.nbytes()) return keep(storage);
  storage.log->checksum = checksum_of(storage);
}

// Code that has a pointer to the memory may write at any time. If the access was not noticed by LibTorch's checks, only
// the checksum shows that something was written.
void Recorder::keep_if_accessed_past_operators(DeferredStorage& storage) {
  const bool may_be_written = storage.end_watch();
  if (storage.log && (may_be_written || checksum_of(storage) != storage.log->checksum)) keep_always(storage);
}

void Recorder::keep(DeferredStorage& storage) {
  const std::lock_guard lock(mutex_);
  unlist(storage);
  storage.end_watch();
  storage.log.reset();
}

void Recorder::keep_always(DeferredStorage& storage) {
  storage.stays_in_memory = true;
  keep(storage);
}

void Recorder::watch(DeferredStorage& storage) {
  if (storage.log) storage.watch_pointers();
}

void Recorder::keep_all(c10::ArrayRef<c10::IValue> arguments) {
  const auto keep_one = [](DeferredStorage* storage) {
    if (storage == nullptr) return;
    storage->recorder().compute(*storage);
    storage->recorder().keep_always(*storage);
  };
  for (const auto& [place, tensor] : tensors_in(arguments)) {
    keep_one(deferred_storage_of(*tensor.unsafeGetTensorImpl()));
  }
  for (const c10::IValue& argument : arguments) {
    if (argument.isStorage()) keep_one(as_deferred(argument.toStorage()));
  }
}

void Recorder::unlist(DeferredStorage& storage) {
  if (!storage.listed_bytes) return;
  resident_.remove(&storage);
  resident_bytes_ -= *storage.listed_bytes;
  storage.listed_bytes.reset();
}

void Recorder::use(DeferredStorage& storage) {
  unlist(storage);
  if (!storage.log || !storage.has_memory()) return;
  resident_.push_back(&storage);
  resident_bytes_ += storage.nbytes();
  storage.listed_bytes = storage.nbytes();
}

void Recorder::free_least_used(const std::vector<DeferredStorage*>& but) {
  for (auto next = resident_.begin(); next != resident_.end() && resident_bytes_ > max_resident_bytes_;) {
    DeferredStorage& storage = **next++;
    if (std::ranges::find(but, &storage) != but.end()) continue;
    keep_if_accessed_past_operators(storage);
    if (!storage.log) continue;
    unlist(storage);
    storage.free_memory();
  }
}

void Recorder::free_all() {
  const std::lock_guard lock(mutex_);
  const size_t limit = std::exchange(max_resident_bytes_, 0);
  free_least_used({});
  max_resident_bytes_ = limit;
}

void Recorder::forget(DeferredStorage& storage) noexcept {
  const std::lock_guard lock(mutex_);
  unlist(storage);
}

void Recorder::materialize(const at::Tensor& tensor, bool computes) {
  const std::lock_guard lock(mutex_);
  const c10::impl::ExcludeDispatchKeyGuard unmarked(c10::DispatchKey::DeferredInit);
  DeferredStorage& storage = *as_deferred(tensor.storage());
  if (computes || !is_whole(tensor, storage)) compute(storage);
  if (!storage.has_memory()) storage.allocate_memory();
  keep(storage);
  storage.is_materialized = true;
  at::Tensor ordinary = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(tensor.storage()), tensor.key_set().remove(c10::DispatchKey::DeferredInit), tensor.dtype());
  ordinary.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
  ordinary.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  tensor.set_data(ordinary);
}

std::shared_ptr<Recorder>& thread_recorder() {
  thread_local std::shared_ptr<Recorder> recorder;
  return recorder;
}

std::shared_ptr<Recorder> recorder_of(c10::ArrayRef<c10::IValue> arguments) {
  for (const auto& [place, tensor] : tensors_in(arguments)) {
    if (DeferredStorage* storage = deferred_storage_of(*tensor.unsafeGetTensorImpl()))
      return storage->shared_recorder();
  }
  return nullptr;
}

}  // namespace ddp::fsdp

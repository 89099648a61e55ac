#include "fsdp/deferred/deferred_storage.h"

#include <c10/core/Allocator.h>

#include <cstring>
#include <utility>

#include "base/rank_prefix.h"
#include "fsdp/deferred/fixed_memory.h"
#include "fsdp/deferred/pointer_watch.h"
#include "fsdp/deferred/recorded_operator.h"
#include "fsdp/deferred/recorder.h"

namespace ddp::fsdp {

namespace {

at::DataPtr at_fixed_address(at::DataPtr memory, size_t bytes) {
  if (!memory.device().is_cpu() || memory.get() == nullptr) return memory;
  at::DataPtr fixed = allocate_fixed_memory(bytes);
  if (fixed.get() == nullptr) return memory;
  std::memcpy(fixed.get(), memory.get(), bytes);
  return fixed;
}

}  // namespace

DeferredStorage::DeferredStorage(at::DataPtr memory, size_t bytes, std::shared_ptr<Recorder> recorder, uint64_t number)
    : c10::StorageImpl(use_byte_size_t(), c10::SymInt(static_cast<int64_t>(bytes)),
                       at_fixed_address(std::move(memory), bytes), /*allocator=*/nullptr, /*resizable=*/false),
      recorder_(std::move(recorder)),
      number_(number) {
  set_allocator(c10::GetAllocator(device().type()));
  set_resizable(true);
}

DeferredStorage::~DeferredStorage() {
  recorder_->forget(*this);
}

void DeferredStorage::set_refuses_access(bool refuses) {
  const auto set = [&](auto& storage) {
    if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); }) {
      if (!refuses) return storage.clear_data_ptr_access_error_msg_();
      storage.release_data_and_set_meta_custom_data_ptr_error_msg_(
          rank_prefix() + "deferred_init(): the memory of " + (name.empty() ? "a tensor of the model" : name) +
          " was requested by data_ptr() or an accessor, but the tensor has no memory at the moment. Call fully_shard() "
          "or "
          "materialize() first; in a constructor take the pointer directly after the operator that makes the tensor.");
    }
  };
  set(static_cast<c10::StorageImpl&>(*this));
}

void DeferredStorage::put_memory(at::DataPtr memory) {
  set_refuses_access(false);
  set_data_ptr_noswap(std::move(memory));
  has_memory_ = true;
}

void DeferredStorage::allocate_memory() {
  if (without_pages_.get() == nullptr) return put_memory(allocator()->allocate(nbytes()));
  restore_pages(without_pages_);
  put_memory(std::move(without_pages_));
}

void DeferredStorage::put_values(at::DataPtr computed) {
  if (without_pages_.get() == nullptr) return put_memory(std::move(computed));
  allocate_memory();
  std::memcpy(_mutable_data_ptr_no_checks().get(), computed.get(), nbytes());
}

void DeferredStorage::free_memory() {
  const c10::Device where = device();
  end_watch();
  at::DataPtr memory = std::exchange(_mutable_data_ptr_no_checks(), at::DataPtr(nullptr, where));
  if (is_fixed_memory(memory) && free_pages(memory)) without_pages_ = std::move(memory);
  set_refuses_access(true);
  has_memory_ = false;
}

void DeferredStorage::watch_pointers() {
  is_watched_ = has_memory_ && fsdp::watch_pointers(*this);
}

bool DeferredStorage::end_watch() {
  const bool was_taken = is_watched_ && !is_untouched(*this);
  if (is_watched_) fsdp::end_watch(*this);
  is_watched_ = false;
  return was_taken;
}

DeferredStorage* as_deferred(const c10::Storage& storage) {
  return dynamic_cast<DeferredStorage*>(storage.unsafeGetStorageImpl());
}

DeferredStorage* deferred_storage_of(const c10::TensorImpl& tensor) {
  if (!tensor.key_set().has(c10::DispatchKey::DeferredInit) || !tensor.has_storage()) return nullptr;
  return as_deferred(tensor.unsafe_storage());
}

}  // namespace ddp::fsdp

#include "fsdp/deferred/deferred_storage.h"

#include <c10/core/Allocator.h>

#include <utility>

#include "base/rank_prefix.h"
#include "fsdp/deferred/recorded_operator.h"
#include "fsdp/deferred/recorder.h"

namespace ddp::fsdp {

DeferredStorage::DeferredStorage(at::DataPtr memory, size_t bytes, std::shared_ptr<Recorder> recorder, uint64_t number)
    : c10::StorageImpl(use_byte_size_t(), c10::SymInt(static_cast<int64_t>(bytes)), std::move(memory),
                       /*allocator=*/nullptr, /*resizable=*/false),
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
          rank_prefix() + "deferred_init(): " + (name.empty() ? "a tensor of the model" : "the parameter " + name) +
          " is read past LibTorch's operators while it has no memory. Call fully_shard() or materialize() first; in a "
          "constructor read the values of a tensor directly after the operator that makes it.");
    }
  };
  set(static_cast<c10::StorageImpl&>(*this));
}

void DeferredStorage::put_memory(at::DataPtr memory) {
  set_refuses_access(false);
  set_data_ptr_noswap(std::move(memory));
  has_memory_ = true;
}

void DeferredStorage::free_memory() {
  const c10::Device where = device();
  set_data_ptr_noswap(at::DataPtr(nullptr, where));
  set_refuses_access(true);
  has_memory_ = false;
}

DeferredStorage* as_deferred(const c10::Storage& storage) {
  return dynamic_cast<DeferredStorage*>(storage.unsafeGetStorageImpl());
}

DeferredStorage* deferred_storage_of(const c10::TensorImpl& tensor) {
  if (!tensor.key_set().has(c10::DispatchKey::DeferredInit) || !tensor.has_storage()) return nullptr;
  return as_deferred(tensor.unsafe_storage());
}

}  // namespace ddp::fsdp

// Notes whether a pointer by which values may be written was taken from a storage: by data_ptr(), an accessor, or an
// operator.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/COW.h>
#include <c10/core/impl/COWDeleter.h>

#include <memory>

namespace ddp::fsdp {

// From 2.15 on a storage calls a function when such a pointer is taken. Earlier ones do so only for their own
// copy-on-write, which copies nothing where a storage is the only one of its memory.
template <typename Storage>
concept CallsMaterializer = requires(Storage& storage) {
  storage.has_materializer();
};

/// `storage` must have memory. False where its LibTorch cannot note it for this memory.
template <typename Storage>
bool watch_pointers(Storage& storage) {
  if constexpr (CallsMaterializer<Storage>) {
    if (!storage.has_materializer()) storage.set_materializer([](c10::StorageImpl*) {});
    return true;
  } else {
    if (c10::impl::cow::is_cow_data_ptr(storage._mutable_data_ptr_no_checks())) return true;
    at::DataPtr& memory = storage._mutable_data_ptr_no_checks();
    if (memory.get() == nullptr || memory.get() != memory.get_context()) return false;
    void* const data = memory.get();
    const c10::Device device = memory.device();
    auto* const context = new c10::impl::cow::COWDeleterContext(memory.move_context());
    storage.set_data_ptr_noswap(at::DataPtr(data, context, &c10::impl::cow::cow_deleter, device));
    return true;
  }
}

/// Whether no pointer was taken since watch_pointers() returned true.
template <typename Storage>
bool is_untouched(Storage& storage) {
  if constexpr (CallsMaterializer<Storage>) {
    return storage.has_materializer();
  } else {
    return c10::impl::cow::is_cow_data_ptr(storage._mutable_data_ptr_no_checks());
  }
}

/// Ends it: a pointer may be taken unnoticed, as by an operator.
template <typename Storage>
void end_watch(Storage& storage) {
  if constexpr (CallsMaterializer<Storage>) {
    storage.clear_materializer();
  } else {
    if (is_untouched(storage)) storage.mutable_data();
  }
}

}  // namespace ddp::fsdp

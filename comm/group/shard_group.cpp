#include "ddprun/detail/comm/shard_group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/strides.h>

#include <stdexcept>
#include <utility>

#include "base/rank_prefix.h"

namespace ddp {
namespace {

class ShardStorage final : public c10::StorageImpl {
 public:
  ShardStorage(c10::DataPtr memory, size_t bytes, c10::Allocator* allocator, ShardPlace place)
      : c10::StorageImpl(use_byte_size_t(), bytes, std::move(memory), allocator, /*resizable=*/false),
        place_(std::move(place)) {}
  const ShardPlace& place() const { return place_; }

 private:
  ShardPlace place_;
};

const ShardStorage* shard_storage_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  return dynamic_cast<const ShardStorage*>(tensor.storage().unsafeGetStorageImpl());
}

}  // namespace

at::Tensor as_shard(const at::Tensor& rows, const ShardPlace& place) {
  const at::NoGradGuard no_grad;
  auto* const allocator = c10::GetAllocator(rows.device().type());
  const at::TensorOptions options = rows.options().requires_grad(false);
  c10::DataPtr memory;
  if (place.is_pinned) {
    const at::Tensor pinned = at::empty(rows.sizes(), options.pinned_memory(true));
    memory = std::move(const_cast<c10::Storage&>(pinned.storage()).mutable_data_ptr());
  } else {
    memory = allocator->allocate(rows.nbytes());
  }
  c10::Storage storage(c10::make_intrusive<ShardStorage>(std::move(memory), rows.nbytes(), allocator, place));
  at::Tensor shard = at::empty({0}, options);
  shard.set_(std::move(storage), 0, rows.sizes(), c10::contiguous_strides(rows.sizes()));
  shard.copy_(rows.detach());
  return shard;
}

void keep_shard_metadata(const at::Tensor& shard, const ShardPlace& place) {
  if (shard_storage_of(shard) == nullptr) shard.set_data(as_shard(shard, place));
}

std::optional<ShardPlace> shard_place_of(const at::Tensor& tensor) {
  const ShardStorage* storage = shard_storage_of(tensor);
  return storage == nullptr ? std::nullopt : std::optional(storage->place());
}

std::optional<GroupHandle> shard_group_of(const at::Tensor& tensor) {
  const ShardStorage* storage = shard_storage_of(tensor);
  return storage == nullptr ? std::nullopt : std::optional(storage->place().group);
}

void refuse_shards(const std::vector<at::Tensor>& parameters, const std::string& user, const std::string& instead) {
  for (const at::Tensor& parameter : parameters) {
    if (shard_storage_of(parameter) == nullptr) continue;
    throw std::invalid_argument(rank_prefix() + user +
                                " would treat a shard of fully_shard() as the whole parameter. " + instead);
  }
}

}  // namespace ddp

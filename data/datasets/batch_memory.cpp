#include "data/datasets/batch_memory.h"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace ddp::detail {

struct BatchMemory::State {
  struct Block {
    at::DataPtr memory{};
    size_t bytes = 0;
  };
  /// The memory of a tensor. Its destructor returns the block when the tensor is freed.
  struct Lease {
    std::shared_ptr<State> state;
    Block block;
  };

  Block take(size_t bytes) {
    std::vector<Block> dropped;  // freed after the lock is released
    {
      const std::lock_guard lock(mutex);
      const auto fits = [&](const Block& block) { return block.bytes >= bytes && block.bytes <= 2 * bytes; };
      const auto found = std::ranges::find_if(free, fits);
      if (found != free.end()) {
        Block block = std::move(*found);
        *found = std::move(free.back());
        free.pop_back();
        return block;
      }
      dropped.swap(free);  // batches have a different size now
    }
    return {.memory = c10::GetCPUAllocator()->allocate(bytes), .bytes = bytes};
  }

  void release_block(Block block) {
    const std::lock_guard lock(mutex);
    free.push_back(std::move(block));
  }

  std::mutex mutex{};
  std::vector<Block> free{};
};

BatchMemory::BatchMemory() : state_(std::make_shared<State>()) {}

at::Tensor BatchMemory::empty(at::IntArrayRef sizes, at::ScalarType dtype) const {
  constexpr size_t kMinReusedBytes = size_t{1} << 20;
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  if (bytes < kMinReusedBytes) return at::empty(sizes, dtype);
  auto lease = std::make_unique<State::Lease>(State::Lease{.state = state_, .block = state_->take(bytes)});
  void* memory = lease->block.memory.get();
  const auto end = [](void* context) {
    const std::unique_ptr<State::Lease> ended(static_cast<State::Lease*>(context));
    ended->state->release_block(std::move(ended->block));
  };
  at::DataPtr data(memory, lease.release(), end, at::kCPU);
  // The storage is resizable, like that of other tensors. A resized tensor no longer uses this memory.
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(data),
                                                       c10::GetCPUAllocator(), /*resizable=*/true);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

}  // namespace ddp::detail

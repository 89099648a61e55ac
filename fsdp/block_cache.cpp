#include "fsdp/block_cache.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace ddp::fsdp {
namespace {

// Without huge pages, the page faults (one for each 4 KiB) take as much time as the copy into the memory.
void prefer_huge_pages(const c10::DataPtr& memory, size_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr size_t kHugePage = size_t{2} << 20;
  if (bytes < 4 * kHugePage) return;
  void* begin = memory.get();
  size_t space = bytes;
  if (std::align(kHugePage, kHugePage, begin, space) == nullptr) return;
  // If the kernel refuses, the memory has small pages.
  static_cast<void>(madvise(begin, space / kHugePage * kHugePage, MADV_HUGEPAGE));
#else
  static_cast<void>(memory);
  static_cast<void>(bytes);
#endif
}

}  // namespace

struct BlockCache::State {
  std::mutex mutex;
  std::multimap<size_t, c10::DataPtr> kept;
  size_t kept_bytes = 0;
  size_t live_bytes = 0;
  size_t most_live_bytes = 0;

  // Takes out the blocks that must be freed, so that with `bytes` more the total stays below the highest live total.
  std::multimap<size_t, c10::DataPtr> take_blocks_for(size_t bytes) {
    std::multimap<size_t, c10::DataPtr> gone;
    while (!kept.empty() && kept_bytes + live_bytes + bytes > most_live_bytes) {
      const auto largest = std::prev(kept.end());
      kept_bytes -= largest->first;
      gone.insert(kept.extract(largest));
    }
    return gone;
  }
};

struct BlockCache::Block {
  std::shared_ptr<State> state;
  size_t bytes;
  c10::DataPtr memory;
};

BlockCache::BlockCache() : state_(std::make_shared<State>()) {}

BlockCache::~BlockCache() {
  release();
}

c10::DataPtr BlockCache::allocate(size_t bytes) {
  auto block = std::make_unique<Block>(Block{state_, bytes, {}});
  std::multimap<size_t, c10::DataPtr> gone;
  {
    const std::lock_guard lock(state_->mutex);
    if (const auto found = state_->kept.find(bytes); found != state_->kept.end()) {
      block->memory = std::move(found->second);
      state_->kept.erase(found);
      state_->kept_bytes -= bytes;
    } else {
      gone = state_->take_blocks_for(bytes);
    }
    state_->live_bytes += bytes;
    state_->most_live_bytes = std::max(state_->most_live_bytes, state_->live_bytes);
  }
  gone.clear();
  if (!block->memory) {
    block->memory = c10::GetCPUAllocator()->allocate(bytes);
    prefer_huge_pages(block->memory, bytes);
  }
  void* data = block->memory.get();
  return {data, block.release(), &release_block, c10::Device(c10::kCPU)};
}

void BlockCache::release_block(void* pointer) {
  const std::unique_ptr<Block> block(static_cast<Block*>(pointer));
  State& state = *block->state;
  const std::lock_guard lock(state.mutex);
  state.live_bytes -= block->bytes;
  state.kept.emplace(block->bytes, std::move(block->memory));
  state.kept_bytes += block->bytes;
}

void BlockCache::copy_data(void* to, const void* from, std::size_t bytes) const {
  default_copy_data(to, from, bytes);
}

void BlockCache::release() {
  std::multimap<size_t, c10::DataPtr> gone;
  const std::lock_guard lock(state_->mutex);
  gone.swap(state_->kept);
  state_->kept_bytes = 0;
}

at::Tensor flat_buffer(int64_t numel, at::ScalarType dtype, c10::Device device, BlockCache& cache) {
  if (!device.is_cpu()) return at::empty({numel}, at::TensorOptions(device).dtype(dtype));
  return at::detail::empty_generic({numel}, &cache, c10::DispatchKeySet(c10::DispatchKey::CPU), dtype, std::nullopt);
}

}  // namespace ddp::fsdp

// Memory of gathered parameters and of messages on the CPU, which is needed again for the next unit: fresh memory would
// cost a page fault for each page.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <memory>

namespace ddp::fsdp {

/// Allocates from LibTorch's allocator, and keeps blocks that are freed for later ones of the same size. Live and kept
/// blocks together are never more bytes than were live at once. Blocks may outlive it. For several threads.
class BlockCache final : public c10::Allocator {
 public:
  BlockCache();
  ~BlockCache() override;

  c10::DataPtr allocate(size_t bytes) override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;

  /// Frees the blocks that it keeps.
  void release();

 private:
  struct State;
  struct Block;
  static void release_block(void* block);

  std::shared_ptr<State> state_;
};

/// A flat tensor of uninitialised memory on `device`; on the CPU of `cache`.
at::Tensor flat_buffer(int64_t numel, at::ScalarType dtype, c10::Device device, BlockCache& cache);

}  // namespace ddp::fsdp

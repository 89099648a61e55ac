// How many bytes LibTorch's tensors on the CPU take, counted by an allocator.
#pragma once

#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <utility>

namespace ddp::test {

/// LibTorch's allocator of the CPU from count_allocations() on.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::kCPU};
    void* data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (data == nullptr) throw std::bad_alloc();
    const int64_t now = live_ += size_of(data);
    int64_t most = most_;
    while (now > most && !most_.compare_exchange_weak(most, now)) {
    }
    if (on_allocation && bytes >= (size_t{1} << 12)) on_allocation();
    return {data, data, &release, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  /// Bytes of the tensors that are alive.
  static int64_t live() { return live_; }
  /// The most that were alive at once since the last reset_most().
  static int64_t most() { return most_; }
  static void reset_most() { most_ = live_.load(); }

  /// Called in the thread of each allocation of some kilobytes.
  static inline std::function<void()> on_allocation;

 private:
  static int64_t size_of(void* data) { return static_cast<int64_t>(malloc_usable_size(data)); }
  static void release(void* data) {
    if (data == nullptr) return;
    live_ -= size_of(data);
    std::free(data);
  }
  static inline std::atomic<int64_t> live_ = 0;
  static inline std::atomic<int64_t> most_ = 0;
};

/// From now on tensors are counted; those of before are not.
inline void count_allocations() {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
}

}  // namespace ddp::test

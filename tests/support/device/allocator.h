// Device memory as LibTorch's caching allocator gives it out: what was freed is given out again at once on the stream
// that it was allocated for, and after record_stream() when the other streams have done what was queued at the freeing.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/device/block.h"
#include "tests/support/device/memory.h"

namespace ddp::test::device {

class DeviceAllocator final : public c10::Allocator {
 public:
  explicit DeviceAllocator(int devices);

  /// On the calling thread's current device and stream.
  c10::DataPtr allocate(size_t bytes) override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;

  /// Null for memory that is none of a device's.
  static Block* block_of(const c10::DataPtr& data);
  /// The one that has this address, for tensors that only borrow their memory; null where nothing is allocated.
  Block* block_at(const void* shown) const;
  void used_on(Block& block, c10::Stream stream);

  /// What was allocated after the allocation of this number.
  std::vector<std::string> live(uint64_t number) const;
  /// For a signal handler: does not wait for a lock.
  std::string describe(const void* shown) const;

 private:
  struct Room {
    char* shown = nullptr;
    size_t bytes = 0;
  };
  struct Waiting {
    Room room{};
    StreamKey stream{};
    std::vector<PointPtr> ends{};
  };

  static void release(void* block);
  void take_back(Block* block);
  Room find(StreamKey stream, size_t bytes);
  void give(StreamKey stream, Room room);
  void collect();

  mutable std::mutex mutex_;
  std::map<StreamKey, std::multimap<size_t, char*>> free_;
  std::list<Waiting> waiting_;
  std::map<const char*, Block*> live_;
  std::vector<size_t> used_;  // of each device's memory
};

}  // namespace ddp::test::device

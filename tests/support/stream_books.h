// Who waits for whom among streams, and who uses which memory: vector clocks, and the rules of LibTorch's caching
// allocator.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace ddp::test {

class StreamBooks {
 public:
  void record(void** event, c10::Stream stream);
  void block(void* event, c10::Stream stream);
  void destroy(void* event);
  void host_waits_for(void* event);
  void host_waits_for(c10::Stream stream);
  void host_waits();
  /// `stream` waits for what is queued on `earlier`.
  void follow(c10::Stream stream, c10::Stream earlier);

  void allocated(void* block, c10::Stream stream);
  /// Tensor::record_stream().
  void keep_for(void* block, c10::Stream stream);
  void freed(void* block);
  /// Something on `stream` reads or writes the block.
  void used(void* block, bool writes, c10::Stream stream, const std::string& what);

  /// The faults so far; forgets them.
  std::vector<std::string> faults();

 private:
  using Key = std::pair<c10::DeviceIndex, c10::StreamId>;
  using Clock = std::map<Key, uint64_t>;  // how far each stream has been waited for
  struct Use {
    uint64_t time = 0;
    bool writes = false;
    std::string what{};
  };
  struct Block {
    Key stream{};
    std::set<Key> kept_for{};
    std::map<Key, std::vector<Use>> uses{};
  };

  static Key key(c10::Stream stream) { return {stream.device_index(), stream.id()}; }
  static std::string name(Key stream);
  static void join(Clock& clock, const Clock& other);
  Clock& clock_of(Key stream);

  std::mutex mutex_;
  std::map<Key, Clock> clocks_;
  Clock host_;
  std::map<void*, Clock> events_;
  std::map<void*, Block> blocks_;
  std::vector<std::string> faults_;
};

}  // namespace ddp::test

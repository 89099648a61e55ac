// Who waits for whom among streams, and who uses which memory: vector clocks, and the rules of LibTorch's caching
// allocator.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ddp::test {

class StreamBooks {
 public:
  /// What a fault says of a block and of who used it; called at once, by the thread that does it.
  using Describe = std::function<std::string(const void* block)>;
  explicit StreamBooks(Describe describe = {}) : describe_(std::move(describe)) {}

  /// Events are whatever their owner calls them.
  void record(void* event, c10::Stream stream);
  void block(void* event, c10::Stream stream);
  void forget(void* event);
  void host_waits_for(void* event);
  void host_waits_for(c10::Stream stream);
  void host_waits();
  /// How much was queued on the stream, and whether the host has waited for that.
  uint64_t time_of(c10::Stream stream);
  bool host_knows(c10::Stream stream, uint64_t time);
  /// host_waits(), and forgets streams and uses: nothing may be queued meanwhile.
  void start_over();
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
    std::string what{};
  };
  // Of one stream, the last ones: whoever waits for these has waited for those before.
  struct Uses {
    Use read{};
    Use write{};
    const Use& last() const { return read.time > write.time ? read : write; }
  };
  struct Block {
    Key stream{};
    std::set<Key> kept_for{};
    std::map<Key, Uses> uses{};
  };

  static Key key(c10::Stream stream) { return {stream.device_index(), stream.id()}; }
  static std::string name(Key stream);
  static void join(Clock& clock, const Clock& other);
  Clock& clock_of(Key stream);
  void fault(std::string text, const void* block);

  const Describe describe_;
  std::mutex mutex_;
  std::map<Key, Clock> clocks_;
  Clock host_;
  std::map<void*, Clock> events_;
  std::map<void*, Block> blocks_;
  std::vector<std::string> faults_;
};

}  // namespace ddp::test

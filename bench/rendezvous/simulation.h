// The memory that the process of the coordinator shares with the processes of the simulated nodes.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <stdexcept>

namespace bench {

enum class Phase : int { kWait, kJoin, kStore, kQuiet, kFail, kEnd };

struct Shared {
  std::atomic<Phase> phase{Phase::kWait};
  std::atomic<int> joined{0};           // nodes that have received their ranks
  std::atomic<int> served{0};           // ranks that have received the answers to their store requests
  std::atomic<int> heard{0};            // nodes that have learned about the first failure
  std::atomic<int> stopped{0};          // nodes that have received the request to stop
  std::atomic<int> lost{0};             // nodes that were wrongly considered lost, or that lost their coordinator
  std::atomic<std::int64_t> failed{0};  // when the node failed, in microseconds of the steady clock
  std::atomic<std::int64_t> last_stop{0};
  std::atomic<std::int64_t> segments{0};  // TCP segments with data, in both directions: roughly the messages
  std::atomic<std::int64_t> bytes{0};
};

inline Shared* make_shared_memory() {
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
  return new (memory) Shared;
}

inline std::int64_t now_microseconds() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace bench

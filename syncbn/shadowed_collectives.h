// Which collectives a model's synchronised batch norms have issued since the last forward began: a rank without data
// shadows them, as torch.distributed's Join calls it.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace ddp::detail {

class ShadowedCollectives {
 public:
  struct Event {
    bool gather;  ///< of a forward; otherwise the all-reduce of a backward
    int64_t channels;
    c10::Device device;
    c10::ScalarType type;  ///< of the forward's input, or of the backward's sums
  };

  void add(const Event& event) {
    const std::lock_guard lock(mutex_);
    if (event.gather && !events_.empty() && !events_.back().gather) events_.clear();  // a new iteration
    events_.push_back(event);
  }
  std::vector<Event> last_iteration() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }

 private:
  mutable std::mutex mutex_;  // a GPU's backward runs in a thread of its own
  std::vector<Event> events_;
};

}  // namespace ddp::detail

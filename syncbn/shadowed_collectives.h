// Records the collectives that a model's synchronised batch norms have issued since the last forward began. A rank
// without data repeats ("shadows") them, as in torch.distributed's Join.
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
    bool gather;  ///< true: the all-gather of a forward; false: the all-reduce of a backward
    int64_t channels;
    c10::Device device;
    c10::ScalarType type;  ///< the type of the forward's input, or of the backward's sums
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
  mutable std::mutex mutex_;  // needed because the backward on a GPU runs in a separate thread
  std::vector<Event> events_;
};

}  // namespace ddp::detail

#include "comm/reducer/bucket_events.h"

#include <torch/csrc/autograd/graph_task.h>

#include <string>

#include "base/timeline/own_timeline.h"

namespace ddp::detail {

uint64_t BucketEvents::begin(const at::Tensor& bucket, const std::function<void(std::function<void()>)>& at_end) {
  if (recording() == nullptr) return 0;
  const int64_t backward = torch::autograd::get_current_graph_task_id();
  if (backward < 0 || backward != backward_) {
    backward_ = backward;
    next_ = 0;
    // The first callback of this backward. What it opens ends with the event of backward itself.
    if (backward >= 0) at_end([] { begin_event(EventKind::kWait, "wait for gradients"); });
  }
  const uint64_t index = next_++;
  const at::Tensor& values = bucket.is_sparse() ? bucket._values() : bucket;
  return begin_event(EventKind::kBucket, "bucket " + std::to_string(index), index,
                     static_cast<uint64_t>(values.nbytes()));
}

void BucketEvents::mark_start(uint64_t event) {
  if (Recorder* recorder = own_recorder(); recorder != nullptr && event != 0) recorder->mark(event);
}

}  // namespace ddp::detail

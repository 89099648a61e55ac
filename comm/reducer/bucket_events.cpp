#include "comm/reducer/bucket_events.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <string>

#include "base/timeline/own_timeline.h"
#include "comm/collectives/device_events.h"

namespace ddp::detail {
namespace {

// The first callback of a backward. The wait ends behind all callbacks, which let the stream of backward wait for the
// buckets; on the host with the event of backward, unless recording began within it and that event is not there.
void begin_wait(c10::Device device) {
  const uint64_t on_host = begin_event(EventKind::kWait, "wait for gradients");
  const uint64_t on_device = begin_on_device("wait for gradients", device);
  torch::autograd::Engine::get_default_engine().queue_callback([on_host, on_device] {
    end_event(on_host);
    end_on_device_here(on_device);
  });
}

}  // namespace

BucketEvent BucketEvents::begin(const at::Tensor& bucket, const std::function<void(std::function<void()>)>& at_end) {
  if (recording() == nullptr) return {};
  const int64_t backward = torch::autograd::get_current_graph_task_id();
  if (backward < 0 || backward != backward_) {
    backward_ = backward;
    next_ = 0;
    if (backward >= 0) at_end([device = bucket.device()] { begin_wait(device); });
  }
  const uint64_t index = next_++;
  const at::Tensor& values = bucket.is_sparse() ? bucket._values() : bucket;
  const std::string name = "bucket " + std::to_string(index);
  return {.on_host = begin_event(EventKind::kBucket, name, index, static_cast<uint64_t>(values.nbytes())),
          .on_device = begin_on_device(name, bucket.device())};
}

void BucketEvent::mark_start() const {
  if (Recorder* recorder = own_recorder(); recorder != nullptr && on_host != 0) recorder->mark(on_host);
}

void BucketEvent::end() const {
  end_event(on_host);
  end_on_device_here(on_device);
}

}  // namespace ddp::detail

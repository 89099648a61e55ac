#include "recompute/frame_lock.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "comm/versions/autograd_node.h"

namespace ddp::recompute {
namespace {

constexpr std::chrono::milliseconds kBetweenServing{1};

std::atomic<int>& backwards_in_regions() {
  static std::atomic<int> count = 0;
  return count;
}

// Returns the device if this is a thread of LibTorch's engine, and the CPU for every other thread.
c10::Device device_of_thread() {
  const auto node = torch::autograd::get_current_node();
  return node ? node->device() : c10::Device(c10::kCPU);
}

// A node that does nothing. It runs after all others, because the engine runs nodes with higher sequence numbers first.
class LastNode final : public torch::autograd::Node {
 public:
  explicit LastNode(const at::Tensor& gradient) : Node(/*sequence_nr=*/0) { add_input_metadata(gradient); }
  std::string name() const override { return "ddp::recompute::LastNode"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*gradients*/) override { return {}; }
};

// Starts a backward that does nothing. Before it returns, the engine runs the nodes that are queued for the device.
void serve(c10::Device device) {
  const at::Tensor nothing = at::empty({0}, device);
  torch::autograd::Engine::get_default_engine().execute({{versions::make_node<LastNode>(nothing), 0}}, {nothing},
                                                        /*keep_graph=*/false, /*create_graph=*/false,
                                                        /*accumulate_grad=*/true, /*outputs=*/{});
}

}  // namespace

void FrameLock::lock() {
  std::unique_lock lock(guard_);
  const c10::Device device = is_free() ? c10::Device(c10::kCPU) : device_of_thread();
  while (!is_free()) {
    if (device.is_cpu()) {  // no other backward needs a thread that called backward()
      released_.wait(lock);
      continue;
    }
    released_.wait_for(lock, kBetweenServing, [this] { return is_free(); });
    if (is_free() || backwards_in_regions() == 0) continue;
    lock.unlock();
    serve(device);
    lock.lock();
  }
  owner_ = std::this_thread::get_id();
  ++depth_;
}

void FrameLock::unlock() {
  {
    const std::lock_guard lock(guard_);
    if (--depth_ > 0) return;
  }
  released_.notify_all();
}

BackwardInRegion::BackwardInRegion() noexcept {
  ++backwards_in_regions();
}

BackwardInRegion::~BackwardInRegion() {
  --backwards_in_regions();
}

}  // namespace ddp::recompute

#include "ddprun/syncbn/join.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <future>
#include <stdexcept>
#include <thread>
#include <utility>

#include <ddprun/comm/collectives.h>
#include <ddprun/syncbn/sync_batch_norm.h>

#include "syncbn/batch_norm_members.h"
#include "syncbn/batch_norm_ops.h"
#include "syncbn/conversion_registry.h"
#include "syncbn/shadowed_collectives.h"

namespace ddp {
namespace {

using detail::ShadowedCollectives;
using Iteration = std::vector<ShadowedCollectives::Event>;

// Takes part in one collective without values. Returns whether every rank has joined, which can be seen only from the
// collectives of a forward.
bool shadow_collective(const ShadowedCollectives::Event& event, const GroupHandle& group) {
  const auto options = at::TensorOptions().device(event.device).dtype(event.type);
  if (!event.gather) {
    all_reduce(at::zeros({2, event.channels}, options), group);
    return false;
  }
  const auto ops = detail::batch_norm_ops_for(event.device);
  const at::Tensor nothing = at::empty({0, event.channels}, options);
  const at::Tensor row = ops->local_row(nothing, {.channels = event.channels, .joined = true});
  return ops->all_joined(all_gather(row, group));
}

// Repeats the iteration's collectives until all other ranks have joined too. Then all ranks run this function, and the
// first gather of the next repetition shows that all have joined. It uses a separate stream, because this thread's
// usual stream also waits for the collectives of the other joinables, which complete only after these.
void shadow_until_all_joined(const Iteration& iteration, const GroupHandle& group) {
  const c10::Device device = iteration.front().device;
  c10::OptionalStreamGuard guard;
  if (device.is_cuda()) guard.reset_stream(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
  for (;;) {
    for (const auto& event : iteration) {
      if (shadow_collective(event, group)) return;
    }
  }
}

class SyncBatchNormJoinHook final : public JoinHook {
 public:
  SyncBatchNormJoinHook(std::shared_ptr<const ShadowedCollectives> shadowed, GroupHandle group)
      : shadowed_(std::move(shadowed)), group_(std::move(group)) {}

  // Runs in a separate thread, concurrently with the other joinables, because the collectives of all joinables are
  // interleaved in a backward.
  void joined() override {
    Iteration iteration = shadowed_->last_iteration();
    if (iteration.empty()) {
      throw std::runtime_error(
          who(group_.info()) +
          ": join: a rank without a single batch cannot know the SyncBatchNorm layers' collectives");
    }
    std::packaged_task<void()> task(
        [iteration = std::move(iteration), group = group_] { shadow_until_all_joined(iteration, group); });
    done_ = task.get_future();
    // Detached, because this rank must not wait here for the other ranks if another joinable fails.
    std::thread(std::move(task)).detach();
  }
  void post_hook(bool /*is_last_joiner*/) override {
    if (done_.valid()) done_.get();
  }

 private:
  const std::shared_ptr<const ShadowedCollectives> shadowed_;
  const GroupHandle group_;
  std::future<void> done_;
};

std::vector<std::shared_ptr<detail::SyncLayer>> layers_of(torch::nn::Module& model) {
  std::vector<std::shared_ptr<detail::SyncLayer>> layers;
  for (const auto& member : detail::batch_norms_of(model)) {
    const at::Tensor* key = member.key();
    if (key == nullptr) continue;
    if (const auto converted = detail::ConversionRegistry::instance().find(*key)) layers.push_back(converted->layer);
  }
  model.apply([&](torch::nn::Module& module) {
    if (const auto* norm = module.as<SyncBatchNormImpl>()) layers.push_back(norm->layer());
  });
  return layers;
}

}  // namespace

SyncBatchNormJoinable::SyncBatchNormJoinable(torch::nn::Module& model, GroupHandle group)
    : group_(std::move(group)), layers_(layers_of(model)), shadowed_(std::make_shared<ShadowedCollectives>()) {
  if (layers_.empty()) {
    throw std::invalid_argument(who(group_.info()) +
                                ": SyncBatchNormJoinable: the model has no synchronised batch norm");
  }
  for (const auto& layer : layers_) {
    if (&layer->group().state() == &group_.state() || &layer->group().state() != &layers_.front()->group().state()) {
      throw std::invalid_argument(layer->describe() +
                                  ": SyncBatchNormJoinable: the layers need their own process group, the same for "
                                  "all of them and another one than DistributedDataParallel's");
    }
  }
  for (const auto& layer : layers_) layer->set_shadowed(shadowed_);
}

SyncBatchNormJoinable::~SyncBatchNormJoinable() {
  for (const auto& layer : layers_) layer->set_shadowed(nullptr);
}

std::unique_ptr<JoinHook> SyncBatchNormJoinable::join_hook(const JoinOptions& /*options*/) {
  return std::make_unique<SyncBatchNormJoinHook>(shadowed_, layers_.front()->group());
}

c10::Device SyncBatchNormJoinable::join_device() const {
  return group_.device();
}

}  // namespace ddp

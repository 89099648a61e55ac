#include "syncbn/conversion_registry.h"

#include <ATen/ops/batch_norm_native.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "syncbn/sync_batch_norm_function.h"

namespace ddp::detail {
namespace {

// This hook is destroyed together with its tensor, so that the registry is notified immediately.
class DestructionHook final : public torch::autograd::FunctionPreHook {
 public:
  ~DestructionHook() override { ConversionRegistry::instance().purge(); }
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    return gradients;
  }
};

void add_destruction_hook(const at::Tensor& tensor) {
  // Buffers have no autograd metadata, which is where hooks are stored.
  torch::autograd::impl::materialize_autograd_meta(tensor);
  const auto& hooks = torch::autograd::impl::hooks(tensor);
  const bool has_one = std::any_of(hooks.begin(), hooks.end(), [](const auto& hook) {
    return dynamic_cast<const DestructionHook*>(hook.get()) != nullptr;
  });
  if (!has_one) torch::autograd::impl::add_hook(tensor, std::make_unique<DestructionHook>());
}

// If the tensor in the module's member was replaced, the registry does not know the new tensor, and the layer would
// train on its own batch without an error. Therefore another layer of the model checks it.
void check_neighbour(const ConvertedLayer& converted) {
  const auto neighbour = converted.neighbour.lock();
  if (!neighbour) return;
  const auto module = neighbour->module.lock();
  if (!module || neighbour->member->unsafeGetTensorImpl() == neighbour->key._unsafe_get_target()) return;
  throw std::logic_error(neighbour->layer->describe() +
                         ": its running_mean or weight was replaced by another tensor after the conversion, which made "
                         "it a plain batch norm. Copy values into the old one, or call convert_sync_batchnorm again.");
}

at::Tensor batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
                      const std::optional<at::Tensor>& running_var, bool training, double momentum, double eps,
                      bool cudnn_enabled) {
  const bool has_statistics = running_mean && running_mean->defined();
  const std::optional<at::Tensor>& key = has_statistics ? running_mean : weight;
  if (training && key && key->defined()) {
    if (const auto converted = ConversionRegistry::instance().find(*key)) {
      // Without running statistics, `training` is true even in eval mode, so the module itself is asked.
      const auto module = converted->module.lock();
      if (module && module->is_training() && converted->layer->group().size() > 1) {
        check_neighbour(*converted);
        RunningStatistics running;
        running.momentum = momentum;
        if (has_statistics) {
          running.mean = *running_mean;
          running.var = running_var.value_or(at::Tensor());
        }
        return sync_batch_norm_function(input, weight.value_or(at::Tensor()), bias.value_or(at::Tensor()), running, eps,
                                        converted->layer);
      }
    }
  }
  return at::native::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
}

}  // namespace

ConversionRegistry& ConversionRegistry::instance() {
  static auto* const registry = new ConversionRegistry;
  return *registry;
}

void ConversionRegistry::add(const std::vector<std::shared_ptr<ConvertedLayer>>& layers) {
  if (layers.empty()) return;
  for (size_t i = 0; i < layers.size(); ++i) layers[i]->neighbour = layers[(i + 1) % layers.size()];
  {
    const std::unique_lock lock(mutex_);
    drop_dead_and_unregister();
    for (const auto& layer : layers) layers_[layer->key._unsafe_get_target()] = layer;
    if (kernels_.empty()) {
      for (const auto key : {c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA}) {
        kernels_.emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
        kernels_.back().impl("batch_norm", TORCH_FN(batch_norm));
      }
    }
  }
  for (const auto& layer : layers) add_destruction_hook(*layer->member);
}

bool ConversionRegistry::remove(const at::Tensor& key) {
  const std::unique_lock lock(mutex_);
  const bool found = layers_.erase(key.unsafeGetTensorImpl()) > 0;
  drop_dead_and_unregister();
  return found;
}

std::shared_ptr<const ConvertedLayer> ConversionRegistry::find(const at::Tensor& key) const {
  const std::shared_lock lock(mutex_);
  const auto found = layers_.find(key.unsafeGetTensorImpl());
  return found == layers_.end() ? nullptr : found->second;
}

void ConversionRegistry::purge() {
  const std::unique_lock lock(mutex_);
  drop_dead_and_unregister();
}

void ConversionRegistry::drop_dead_and_unregister() {
  std::erase_if(layers_, [](const auto& item) { return item.second->key.expired() || item.second->module.expired(); });
  if (layers_.empty()) kernels_.clear();
}

}  // namespace ddp::detail

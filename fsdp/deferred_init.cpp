#include "ddprun/fsdp/deferred_init.h"

#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "base/malloc_tuning.h"
#include "base/rank_prefix.h"
#include "fsdp/deferred/deferred_storage.h"
#include "fsdp/deferred/recorder.h"
#include "fsdp/parameter_storage.h"

namespace ddp {
namespace {

template <typename Visit>
void for_each_deferred(const torch::nn::Module& module, const Visit& visit) {
  for (const auto& parameter : module.named_parameters()) {
    if (!parameter.value().defined()) continue;
    if (auto* storage = fsdp::deferred_storage_of(*parameter.value().unsafeGetTensorImpl())) {
      visit(parameter.value(), *storage, "the parameter " + parameter.key());
    }
  }
  for (const auto& buffer : module.named_buffers()) {
    if (!buffer.value().defined()) continue;
    if (auto* storage = fsdp::deferred_storage_of(*buffer.value().unsafeGetTensorImpl())) {
      visit(buffer.value(), *storage, "the buffer " + buffer.key());
    }
  }
}

}  // namespace

namespace detail {

class DeferredScope::State {
 public:
  explicit State(const DeferredInitOptions& options)
      : is_outermost_(fsdp::thread_recorder() == nullptr), dispatch_guard_(c10::DispatchKey::DeferredInit) {
    if (c10::InferenceMode::is_enabled()) {
      throw std::logic_error(rank_prefix() +
                             "deferred_init(): a model that is constructed in inference mode cannot be "
                             "trained. Call it outside of InferenceMode.");
    }
    fsdp::register_operator_kernel();
    if (is_outermost_) {
      fsdp::thread_recorder() = std::make_shared<fsdp::Recorder>(options.smallest_bytes, options.most_resident_bytes);
    }
  }
  ~State() {
    if (is_outermost_) fsdp::thread_recorder().reset();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  bool is_outermost() const { return is_outermost_; }

 private:
  bool is_outermost_;
  FreedMemoryReturns freed_memory_returns_;
  c10::impl::IncludeDispatchKeyGuard dispatch_guard_;
};

DeferredScope::DeferredScope(const DeferredInitOptions& options) : state_(std::make_unique<State>(options)) {}

DeferredScope::~DeferredScope() = default;

void DeferredScope::finish(const torch::nn::Module& module) {
  if (!state_->is_outermost()) return;
  for_each_deferred(module, [](const at::Tensor&, fsdp::DeferredStorage& storage, const std::string& name) {
    if (storage.name.empty()) storage.name = name;
  });
  fsdp::thread_recorder()->free_all();
}

}  // namespace detail

void materialize(AnyModuleRef module) {
  for_each_deferred(module.get(), [](const at::Tensor& tensor, fsdp::DeferredStorage& storage, const std::string&) {
    const std::shared_ptr<fsdp::Recorder> recorder = storage.shared_recorder();
    recorder->materialize(tensor, /*computes=*/true);
  });
}

bool is_deferred(const torch::nn::Module& module) {
  bool is = false;
  for_each_deferred(module, [&](const at::Tensor&, fsdp::DeferredStorage&, const std::string&) { is = true; });
  return is;
}

}  // namespace ddp

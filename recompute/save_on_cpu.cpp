#include "ddprun/recompute/save_on_cpu.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "base/rank_prefix.h"
#include "ddprun/detail/comm/device_copy.h"
#include "recompute/saved_tensor_mode.h"

namespace ddp {

class save_on_cpu::Hooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Hooks(bool pins_memory) : pins_memory_(pins_memory) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    device_ = tensor.device();
    // A parameter stays on its device anyway, so a copy on the CPU would only use additional memory.
    is_copy_ = !device_.is_cpu() && !tensor.is_meta() && !(tensor.is_leaf() && tensor.requires_grad()) &&
               tensor.layout() == at::kStrided;
    if (is_copy_) {
      saved_ = at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(pins_memory_));
      copy_into(saved_, tensor);
    } else {
      saved_ = tensor.detach();
      version_ = version();
    }
  }

  at::Tensor call_unpack_hook() override {
    if (is_copy_) return to_device(saved_, device_);
    if (version() != version_) {
      throw std::runtime_error(rank_prefix() + "save_on_cpu: a tensor of shape " + c10::str(saved_.sizes()) +
                               " that the backward needs was changed in place after the forward (version " +
                               std::to_string(version_) + " was saved, it is now " + std::to_string(version()) +
                               "). Use the operator that returns a new tensor.");
    }
    return saved_;
  }

 private:
  int64_t version() const { return saved_.is_inference() ? 0 : saved_._version(); }

  bool pins_memory_;
  bool is_copy_ = false;
  c10::Device device_ = at::kCPU;
  at::Tensor saved_;
  int64_t version_ = 0;
};

class save_on_cpu::Mode final : public recompute::SavedTensorMode {
 public:
  explicit Mode(bool pins_memory) : pins_memory_(pins_memory) {}
  std::unique_ptr<torch::autograd::SavedVariableHooks> next_hooks() override {
    return std::make_unique<Hooks>(pins_memory_);
  }

 private:
  bool pins_memory_;
};

save_on_cpu::save_on_cpu(const SaveOnCpuOptions& options) : mode_(std::make_unique<Mode>(options.pin_memory)) {
  recompute::install_engine();
  recompute::begin_mode(*mode_);
}

save_on_cpu::~save_on_cpu() {
  recompute::end_mode(*mode_);
}

}  // namespace ddp

#include "recompute/saved_tensor_mode.h"

#include <torch/csrc/autograd/engine.h>

#include <optional>
#include <stdexcept>
#include <typeinfo>
#include <utility>

#include "base/rank_prefix.h"
#include "recompute/frame_lock.h"

namespace ddp::recompute {
namespace {

// The state is thread-local, because each thread may run a backward.
thread_local SavedTensorMode* current = nullptr;

// LibTorch's engine with two changes: the default hooks and execute().
class EngineWithModes final : public torch::autograd::Engine {
 public:
  static torch::autograd::Engine& instance() {
    static EngineWithModes engine;
    return engine;
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return current == nullptr ? nullptr : current->next_hooks();
  }

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs, bool keep_graph,
                                         bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    for (auto* mode = current; mode != nullptr && mode->before_backward(roots, outputs);) mode = mode->outer();
    std::optional<PlainMode> plain;
    std::optional<SavedTensorScope> scope;
    std::optional<BackwardInRegion> in_region;
    if (current != nullptr && !current->holds_in_backwards()) {
      scope.emplace(plain.emplace());
      in_region.emplace();
    }
    return Engine::execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }

 private:
  // LibTorch starts the threads of an engine once per process, because it expects a single engine. If LibTorch's own
  // engine has already run a backward, this engine must start its own threads.
  EngineWithModes() {
    initialize_device_threads_pool();
    if (!thread_pool_shared_) start_device_threads();
  }
  ~EngineWithModes() override { stop(); }
};

}  // namespace

void begin_mode(SavedTensorMode& mode) noexcept {
  mode.outer_ = std::exchange(current, &mode);
}

void end_mode(SavedTensorMode& mode) noexcept {
  SavedTensorMode** place = &current;
  while (*place != nullptr && *place != &mode) place = &(*place)->outer_;
  if (*place != nullptr) *place = mode.outer_;
}

SavedTensorMode* current_mode() noexcept {
  return current;
}

void install_engine() {
  const torch::autograd::Engine& installed = torch::autograd::Engine::get_default_engine();
  const std::type_info& type = typeid(installed);
  if (type == typeid(EngineWithModes)) return;
  if (type != typeid(torch::autograd::Engine)) {
    throw std::runtime_error(
        rank_prefix() +
        "checkpoint() and save_on_cpu() cannot change what autograd saves: this process has another autograd engine "
        "than "
        "LibTorch's own (a process that imports torch in Python has). Use torch.utils.checkpoint there.");
  }
  torch::autograd::set_default_engine_stub(&EngineWithModes::instance);
}

}  // namespace ddp::recompute

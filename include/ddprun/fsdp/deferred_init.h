// Construction of a model that no rank could hold: its tensors have memory only while an operator needs them, until
// fully_shard() takes each rank's rows. Reference: torchdistx's deferred_init(), and torch.device("meta") in Python.
//
//     auto net = ddp::deferred_init([&] { return Net(options); });
//     auto model = ddp::fully_shard(net, group, {.units = {ddp::each<Block>()}});
#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <memory>
#include <type_traits>

#include <ddprun/comm/any_module_ref.h>
#include <ddprun/detail/comm/module_holder.h>

namespace ddp {

/// Settings of deferred_init(), all optional.
struct DeferredInitOptions {
  /// Tensors of fewer bytes are made as always.
  size_t smallest_bytes = size_t{64} << 10;
  /// How much of what can be computed again stays in memory during the construction, besides the tensors of the
  /// operator that runs.
  size_t most_resident_bytes = size_t{64} << 20;
};

namespace detail {

/// While it lives, what the operators of this thread make can be freed and computed again. Used by deferred_init(); not
/// meant for programs.
class DeferredScope {
 public:
  explicit DeferredScope(const DeferredInitOptions& options);
  ~DeferredScope();
  DeferredScope(const DeferredScope&) = delete;
  DeferredScope& operator=(const DeferredScope&) = delete;

  /// Names the tensors of what was constructed, and frees them.
  void finish(const torch::nn::Module& module);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace detail

/// Calls `construct`, which returns a model (as for fully_shard()), and returns its result, whose large parameters and
/// buffers have no memory: what computes them is recorded, and fully_shard() repeats it for one parameter after the
/// other. Models need no change, and the values have the bits of a construction without it: operators run at once with
/// true values and draw the program's random numbers, so a constructor may read values and branch on them. A tensor of
/// which the constructor takes a pointer (data_ptr(), accessor()) stays in memory. A pointer for reading
/// (const_data_ptr()) must be used before the next operator: later it may end the process by SIGSEGV.
///
/// Afterwards init functions and to() may still change the model. Other uses of a parameter throw std::logic_error with
/// its name; materialize() ends that. Each rank may call it by itself. Throws what `construct` throws, and
/// std::logic_error in inference mode.
template <typename Construct>
auto deferred_init(Construct&& construct, const DeferredInitOptions& options = {}) {
  using Model = std::remove_cvref_t<decltype(construct())>;
  static_assert(detail::kHoldsModule<Model>,
                "the function of deferred_init() must return a type made by TORCH_MODULE or a std::shared_ptr to a "
                "module");
  detail::DeferredScope scope(options);
  Model model = construct();
  scope.finish(*detail::as_module(model));
  return model;
}

/// Gives all parameters and buffers of a model of deferred_init() their memory and values: an ordinary model, as
/// without it. Nothing for other models. Throws std::runtime_error when an operator does not repeat what it computed.
void materialize(AnyModuleRef module);

/// Whether a parameter or buffer of `module` waits for fully_shard() or materialize().
bool is_deferred(const torch::nn::Module& module);

}  // namespace ddp

// Construction of a model that does not fit into the memory of one rank: until fully_shard() takes each rank's rows,
// its tensors have memory only while an operator needs them. Reference: torchdistx's deferred_init(), and
// torch.device("meta") in Python.
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
  /// Tensors with fewer bytes are constructed normally.
  size_t smallest_bytes = size_t{64} << 10;
  /// The most bytes of recomputable tensors that stay in memory during the construction, besides the tensors of the
  /// running operator.
  size_t most_resident_bytes = size_t{64} << 20;
};

namespace detail {

/// While it exists, tensors that operators of this thread compute can be freed and computed again. Used by
/// deferred_init(); not for programs.
class DeferredScope {
 public:
  explicit DeferredScope(const DeferredInitOptions& options);
  ~DeferredScope();
  DeferredScope(const DeferredScope&) = delete;
  DeferredScope& operator=(const DeferredScope&) = delete;

  /// Records the names of the constructed module's tensors, and frees their memory.
  void finish(const torch::nn::Module& module);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace detail

/// Calls `construct`, which returns a model (as for fully_shard()), and returns its result, whose large parameters and
/// buffers have no memory. The operators that compute them are recorded, and fully_shard() repeats these operators for
/// one parameter after the other. Models need no change, and the values have the same bits as after a normal
/// construction: during the construction operators run immediately on real values and draw the program's random
/// numbers, so a constructor may read values and branch on them. If the constructor takes a pointer to a tensor's data
/// (data_ptr(), accessor()), that tensor stays in memory. A pointer for reading (const_data_ptr()) must be used before
/// the next operator: later it may end the process by SIGSEGV.
///
/// Afterwards init functions and to() may still change the model. Other uses of a parameter throw std::logic_error with
/// its name, until materialize() is called. Each rank may call it by itself. Throws what `construct` throws, and
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

/// Allocates and computes all parameters and buffers of a model that deferred_init() made; afterwards it is an ordinary
/// model. Does nothing for other models. Throws std::runtime_error when an operator does not repeat what it computed.
void materialize(AnyModuleRef module);

/// Whether a parameter or buffer of `module` has no memory before fully_shard() or materialize() is called.
bool is_deferred(const torch::nn::Module& module);

}  // namespace ddp

// DistributedDataParallel for models that are not torch::nn::Module: those of bindings to other languages, of
// TorchScript (see script_distributed_data_parallel.h), and functions of tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include <ddprun/comm/ddp_options.h>
#include <ddprun/ddp/ddp_wrapper.h>
#include <ddprun/detail/ddp/model_parameters.h>

namespace ddp {

/// A model as names and tensors.
struct ModelTensors {
  /// Leaf tensors with unique names, in the same order on all ranks. The wrapper holds these tensors, so the model must
  /// not replace them by others.
  std::vector<NamedTensor> parameters{};
  /// Returns the current buffers, in the same order on all ranks; an empty function means that the model has no
  /// buffers. The constructor calls it, and before_forward() calls it when buffers are synchronised.
  std::function<std::vector<NamedTensor>()> buffers{};
  /// Names of the parameters whose gradients are sparse.
  std::vector<std::string> sparse_gradients{};
  /// The model's name, for logging_data().
  std::string name = "model";
};

/// DistributedDataParallel without the model's type: the program calls the model itself, between two functions.
///
///     ddp::UntypedDistributedDataParallel model({.parameters = {{"weight", w}, {"bias", b}}}, group);
///     model.before_forward();
///     const auto outputs = model.after_forward({at::linear(x, w, b)});
///     outputs[0].square().mean().backward();            // averages the gradients over the ranks
///
/// DistributedDataParallel does the same around a module's forward: both have the same options, bits and errors. Every
/// rank of `group` must construct it. Throws std::invalid_argument when a tensor or an option cannot be used, and
/// std::runtime_error when the ranks' models differ. It must be destroyed before, or together with, the group.
class UntypedDistributedDataParallel : public DdpWrapper {
 public:
  /// Wraps `model`; a collective.
  UntypedDistributedDataParallel(ModelTensors model, const GroupHandle& group, const DdpOptions& options = {});

  /// Must be called before each call of the model. All ranks must call it equally often, or inside join(). Broadcasts
  /// the buffers from rank 0 if DdpOptions require it. Throws std::runtime_error when a parameter has changed since
  /// construction, when the last backward did not reach every parameter, and when a reduction has failed.
  void before_forward() { core().before_forward(); }

  /// Must be called after each call of the model, with the tensors from which the loss is computed. Returns the tensors
  /// to use in their place, in the same order: with find_unused_parameters and static_graph some are copies that
  /// autograd passes through this wrapper, else they are the given ones. A forward that throws needs no
  /// after_forward(). Throws std::logic_error when these options have to see outputs and `outputs` is empty.
  std::vector<at::Tensor> after_forward(std::vector<at::Tensor> outputs);
};

}  // namespace ddp

// DistributedDataParallel for TorchScript: a model that torch::jit::load() has read, to be fine-tuned on several ranks.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <vector>

#include <ddprun/ddp/untyped_distributed_data_parallel.h>

namespace ddp {

/// The parameters and buffers of a TorchScript module and its submodules, under their names. The weight of an
/// Embedding or EmbeddingBag with sparse=True is listed as sparse.
ModelTensors tensors_of(const torch::jit::Module& module);

/// DistributedDataParallel around a torch::jit::Module, with the same options, bits and errors:
///
///     torch::jit::Module script = torch::jit::load("resnet.pt", group.device());
///     script.train();
///     ddp::ScriptDistributedDataParallel model(script, group);
///     auto loss = torch::mse_loss(model.forward({x}).toTensor(), y);
///     loss.backward();
///
/// The wrapper shares the module with the caller. Every rank of `group` must construct it, with the same model on the
/// device on which it will train. Throws as UntypedDistributedDataParallel.
class ScriptDistributedDataParallel : public UntypedDistributedDataParallel {
 public:
  /// Wraps `module`; a collective.
  ScriptDistributedDataParallel(torch::jit::Module module, const GroupHandle& group, const DdpOptions& options = {});

  /// Calls the module's forward and returns what it returns. All ranks must call it equally often, or inside join().
  /// With find_unused_parameters or static_graph the tensors in the output, in tuples, lists, dicts and optionals, are
  /// replaced by copies; std::logic_error is thrown for an output that is an object of a class. Throws as
  /// UntypedDistributedDataParallel::before_forward() as well.
  c10::IValue forward(std::vector<c10::IValue> inputs, const torch::jit::Kwargs& kwargs = {});

  /// The wrapped module, shared with the caller: the one to save.
  torch::jit::Module& module() { return module_; }

 private:
  torch::jit::Module module_;
};

}  // namespace ddp

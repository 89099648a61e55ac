// Saving and resuming a training run in one file, and pretrained weights. Rank 0 writes one safetensors file; every
// rank reads it.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/checkpoint/options.h>
#include <ddprun/checkpoint/safetensors_header.h>
#include <ddprun/comm/any_module_ref.h>
#include <ddprun/comm/process_group.h>

namespace torch::optim {
class Optimizer;
}

namespace ddp {

/// What a checkpoint saves and restores.
struct CheckpointState {
  /// The model, in any form that AnyModuleRef takes; its parameters and buffers are saved.
  AnyModuleRef model;
  /// Any of ddp::optim, or SGD, Adam, AdamW, Adagrad or RMSprop of torch::optim, over parameters of `model`.
  std::optional<std::reference_wrapper<torch::optim::Optimizer>> optimizer = std::nullopt;
};

/// Writes `state` and `metadata` (the epoch, for example) to the file `path`, atomically: after a crash at any moment
/// the earlier file is still there. Creates missing folders. Every rank must call it. Rank 0 writes, and the call
/// returns on every rank only after the file is on disk. Python reads the file with safetensors.torch.load_file:
/// parameters and buffers have state_dict()'s names without a wrapper's `module.`, optimizer tensors are
/// `state.<parameter>.<field>`, and the hyper-parameters are JSON in the metadata. Throws std::runtime_error with rank
/// 0's reason on all ranks.
void save_checkpoint(const std::filesystem::path& path, const CheckpointState& state, const GroupHandle& group,
                     const Metadata& metadata = {});

/// Restores `state` from a file that save_checkpoint() or Python wrote (see open_tensors()), or from a checkpoint's
/// folder whose tensors are in chunks. The tensors are loaded on the device of each rank's model. Of a sharded state
/// each rank reads its own part. Every rank must call it and be able to read the file. All ranks load, or no rank does:
/// names, shapes and dtypes are verified and all data is read on all ranks before any model or optimizer changes. If a
/// rank fails, all ranks throw std::runtime_error with the reasons of all. The optimizer continues with the saved
/// hyper-parameters.
LoadedFile load_checkpoint(const std::filesystem::path& path, const CheckpointState& state, const GroupHandle& group,
                           const LoadOptions& options = {});

/// Loads the model part of a checkpoint on rank 0, e.g. pretrained weights before DistributedDataParallel, which copies
/// rank 0's weights to the other ranks. Every rank must call it, but only rank 0 reads the file and returns what it
/// found; the models of the other ranks are unchanged. For a fully sharded model every rank reads its own rows. A
/// failure on one rank makes all ranks throw, and then no model is changed, as in load_checkpoint().
LoadedFile load_weights(const std::filesystem::path& path, AnyModuleRef model, const GroupHandle& group,
                        const LoadOptions& options = {});

/// The same in this process alone, without a group.
LoadedFile load_weights(const std::filesystem::path& path, AnyModuleRef model, const LoadOptions& options = {});

/// Stops training the parameters of `model` whose names match any of `patterns`. Returns the names; throws
/// std::invalid_argument when a pattern matches none.
std::vector<std::string> freeze_layers(AnyModuleRef model, const std::vector<std::string>& patterns);

/// Stops training all parameters that no pattern matches: `freeze_all_but(net, {"fc"})` continues to train the
/// classifier only. Returns the names of the frozen parameters. Throws as freeze_layers() does, and then freezes
/// nothing.
std::vector<std::string> freeze_all_but(AnyModuleRef model, const std::vector<std::string>& patterns);

/// The parameters that are trained, for an optimizer.
std::vector<at::Tensor> trainable_parameters(AnyModuleRef model);

}  // namespace ddp

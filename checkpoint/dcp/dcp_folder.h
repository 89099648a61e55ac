// Reads the folders of torch.distributed.checkpoint (DCP): which tensors of a training run they hold and where, and the
// plain values beside them. Nothing in their pickles is executed. No LibTorch.
#pragma once

#include <filesystem>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/shards/sharded_run.h"

namespace ddp::dcp {

/// Whether `path` is a folder with a .metadata, or with a __<rank>.metadata of each rank (which read_dcp_folder()
/// refuses by name).
bool is_dcp_folder(const std::filesystem::path& path);

/// The run in a folder that torch.distributed.checkpoint.save() of PyTorch 2.4 to 2.15 or DcpWriter wrote: the model
/// (below model, state_dict, model_state_dict, net or module; else what the folder has at its root), the optimizers
/// (below optim, optimizer, optimizer_state_dict, optimizer_<name>, optimizers.<name> …; nested, or flattened by
/// StateDictOptions.flatten_optimizer_state_dict), and as texts "scaler.state", "schedule.state", "sampler.state" and
/// "trainer.json", the JSON that a .pt file of the same content gives; "trainer.json" has the run's "step" among its
/// values. The usual keys may also be below one other, as {"app": {"model": …, "optim": …}}.
///
/// Parameters of an optimizer have the names that the folder has for them, or "#0", "#1" … where it only numbers them.
/// A flattened optimizer does not say how many groups there were: parameters with equal options become one group, in
/// the order of the state dict. The catalogs were compared by shards::check(), and every item lies in its file.
///
/// Reads .metadata and the plain values, whose neighbours it reads together; no tensor but those of one element among
/// the values. Throws std::runtime_error naming the folder, and the rank, file and key where there is one: for a
/// missing or short file, a damaged value, a pickle that asks for a name that metadata does not have, items written
/// through a stream transform, and chunks that form no tensor; std::system_error when a file cannot be read.
shards::ShardedRun read_dcp_folder(storage::FileSystem& file_system, const std::filesystem::path& folder);

}  // namespace ddp::dcp

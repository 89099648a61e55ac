// The folders that ddprun-checkpoint writes. No LibTorch.
#pragma once

#include <filesystem>

#include "checkpoint/tool/convert.h"

namespace ddp::tool {

// Each writes `target`, which must not exist, whole or not at all, and returns what it had to leave out. They throw as
// convert() does.

/// model-0000i-of-0000n.safetensors, each with at most options.max_file_size bytes of tensors or one tensor, and
/// model.safetensors.index.json. Weights alone.
LeftOut write_hugging_face_folder(const TensorSource& source, const std::filesystem::path& target,
                                  const ConvertOptions& options);

/// One rank's folder of torch.distributed.checkpoint: `model.<name>`; `optim.state.<parameter>.<field>` and
/// `optim.param_groups.<parameter>.<option>`, as StateDictOptions.flatten_optimizer_state_dict makes them, or Python's
/// numbers of parameters and groups where the source has no names; `optimizers.<name>` likewise; and the values.
LeftOut write_dcp_run(const TensorSource& source, const std::filesystem::path& target, const ConvertOptions& options);

/// A checkpoint as CheckpointManager writes it, its tensors whole. The name of `target` must be that of a checkpoint;
/// its step is the source's, where that has one.
LeftOut write_checkpoint(const TensorSource& source, const std::filesystem::path& target,
                         const ConvertOptions& options);

}  // namespace ddp::tool

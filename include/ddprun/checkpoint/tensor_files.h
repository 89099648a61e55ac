// Opens any file that holds tensors by name: safetensors, or PyTorch's .pt; and writes .pt files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <ddprun/checkpoint/safetensors.h>

namespace ddp {

/// The tensors of a file, recognised by its content and memory-mapped: from a safetensors file under their own names;
/// from a .pt file (Python's torch.save, LibTorch's torch::save) the model's state dict and an optimizer's state, if
/// the file has them (pt/state_dict.h describes the search). The structure is verified, and every byte of a .pt file by
/// its checksums, if there are any. Code in a pickle is never executed. Tensors that cannot be loaded (sparse,
/// quantized, nested, meta) are listed in StoredTensors::skipped. `path` can also be the Hugging Face index of a model
/// in several files (model.safetensors.index.json), or a folder that contains an index or a model.safetensors. From a
/// checkpoint that several ranks wrote, or a folder of torch.distributed.checkpoint, the model is read into memory.
/// `key` is LoadOptions::key: the entry that holds the weights. Throws std::system_error or std::runtime_error naming
/// the file.
StoredTensors open_tensors(const std::filesystem::path& path, const std::string& key = {});

/// The content of a .pt file besides the model's tensors.
struct PtExtras {
  TensorMap optimizer{};           ///< tensors `state.<parameter>.<field>`
  std::string optimizer_groups{};  ///< save_optimizer_state()'s JSON; empty for no optimizer
  std::string values{};            ///< a JSON object; empty for none
};

/// Writes `model`, atomically, for a plain torch.load: as a state dict, or with extras as {'model': …, 'optimizer': …,
/// values …}. Any device and strides. Throws std::invalid_argument or std::system_error.
void save_pt(const std::filesystem::path& path, const TensorMap& model, const PtExtras& extras = {});

}  // namespace ddp

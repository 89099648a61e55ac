// Opens any file that holds tensors by name: safetensors, or PyTorch's .pt; and writes .pt files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <ddprun/checkpoint/safetensors.h>

namespace ddp {

/// The tensors of a file, recognised by its content and memory-mapped: of safetensors as they are named; of a .pt file
/// (Python's torch.save, LibTorch's torch::save) the model's state dict and an optimizer's state, as far as it holds
/// them (pt/state_dict.h says where it looks). Structure is verified here, and every byte of a .pt by its checksums,
/// where it has them; nothing that a pickle asks for is run. Tensors that C++ does not take (sparse, quantized, nested,
/// meta) are listed in StoredTensors::skipped. Also a model in several files by its Hugging Face index
/// (model.safetensors.index.json), and a folder that holds an index or a model.safetensors. Of a checkpoint that
/// several ranks wrote, and of a folder of torch.distributed.checkpoint, the model, read into memory. `key` is
/// LoadOptions::key: the entry that holds the weights. Throws std::system_error or std::runtime_error naming the file.
StoredTensors open_tensors(const std::filesystem::path& path, const std::string& key = {});

/// What a .pt file shall hold besides the model's tensors.
struct PtExtras {
  TensorMap optimizer{};           ///< tensors `state.<parameter>.<field>`
  std::string optimizer_groups{};  ///< save_optimizer_state()'s JSON; empty for no optimizer
  std::string values{};            ///< a JSON object; empty for none
};

/// Writes `model`, atomically, for a plain torch.load: as a state dict, or with extras as {'model': …, 'optimizer': …,
/// values …}. Any device and strides. Throws std::invalid_argument or std::system_error.
void save_pt(const std::filesystem::path& path, const TensorMap& model, const PtExtras& extras = {});

}  // namespace ddp

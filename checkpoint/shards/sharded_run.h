// The tensors of a training run whose files hold chunks of them, and what stands beside. No LibTorch.
#pragma once

#include <map>
#include <string>

#include "checkpoint/shards/tensor_catalog.h"

namespace ddp::shards {

/// The parts have the names of the files that hold them in a checkpoint whose tensors are whole: "model.safetensors",
/// "optim.safetensors", "optim-<name>.safetensors".
struct ShardedRun {
  std::map<std::string, TensorCatalog> parts{};
  /// Of a folder of torch.distributed.checkpoint: "scaler.state", "schedule.state" and "trainer.json" with the plain
  /// values, each JSON.
  std::map<std::string, std::string> texts{};
  /// What is in the folder and is not read, by name, and what it is.
  std::map<std::string, std::string> skipped{};
};

}  // namespace ddp::shards

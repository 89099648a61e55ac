// What each rank writes of a checkpoint whose tensors are divided over the ranks: the rows that it alone has, and of
// what several have an even share of the bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include <ddprun/checkpoint/training_state.h>
#include <ddprun/comm/process_group.h>

#include "checkpoint/run_writer.h"
#include "checkpoint/shards/shard_files.h"

namespace ddp {

/// This rank's part of a model's or an optimizer's tensors.
struct ShardedPart {
  struct Piece {
    shards::ChunkEntry chunk{};
    at::Tensor rows{};  ///< the elements of `chunk`, in the model's or the optimizer's memory
  };
  std::vector<Piece> pieces{};
  Metadata metadata{};
};

/// By the names of the files that hold the parts where they are whole: "model.safetensors".
using ShardedContent = std::map<std::string, ShardedPart>;

/// Whether no rank has the whole state: the model is fully sharded, or an optimizer's state is divided over ranks. Asks
/// no other rank.
bool is_divided(const TrainingState& state);

/// Every rank must call it with the same names. Throws std::runtime_error with the same text on all ranks where their
/// tensors differ or do not form wholes, or where a part cannot be saved. Rank 0 calls `notify` where ranks have other
/// values of what is written by several.
ShardedContent collect_shards(const TrainingState& state, const GroupHandle& group, const Notify& notify);

/// What collect_shards() would refuse on this rank alone. Throws std::invalid_argument.
void check_shards(const TrainingState& state);

}  // namespace ddp

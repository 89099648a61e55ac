// The mark of a shard: a parameter of which each rank has other rows. What would take it for the whole parameter, such
// as a norm, a checkpoint or another way to divide it, finds the mark and refuses it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Of which parameter a shard is a part.
struct ShardPlace {
  GroupHandle group;                   ///< its ranks share the parameter
  std::vector<int64_t> whole_sizes{};  ///< the parameter's shape
  int64_t first_row = 0;               ///< the shard's first index along dimension 0
  bool is_pinned = false;              ///< the shard is in page-locked memory of the host
};

/// A copy of `rows` that is marked as this rank's rows of the parameter that `place` describes.
at::Tensor as_shard(const at::Tensor& rows, const ShardPlace& place);

/// Gives a shard whose memory was replaced, as by torch::load(), its mark again.
void keep_shard_metadata(const at::Tensor& shard, const ShardPlace& place);

/// The place of the shard that `tensor` is, or of which `tensor` is a detached alias; nullopt for other tensors.
std::optional<ShardPlace> shard_place_of(const at::Tensor& tensor);

/// The group over which the parameter of shard `tensor` is sharded; nullopt for other tensors.
std::optional<GroupHandle> shard_group_of(const at::Tensor& tensor);

/// Throws std::invalid_argument if a tensor of `parameters` is a shard: "`user` would treat a shard of fully_shard() as
/// the whole parameter. `instead`".
void refuse_shards(const std::vector<at::Tensor>& parameters, const std::string& user, const std::string& instead);

}  // namespace ddp

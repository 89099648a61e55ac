// The mark of a shard: a parameter of which each rank has other rows. What would take it for the whole parameter, such
// as a norm, a checkpoint or another way to divide it, finds the mark and refuses it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// A copy of `rows` that is marked as this rank's rows of a parameter which the ranks of `group` share.
at::Tensor as_shard(const at::Tensor& rows, const GroupHandle& group);

/// Gives a shard whose memory was replaced, as by torch::load(), its mark again.
void keep_shard_mark(const at::Tensor& shard, const GroupHandle& group);

/// The group that shares the parameter of which `tensor` is a shard; none for other tensors.
std::optional<GroupHandle> shard_group_of(const at::Tensor& tensor);

/// Throws std::invalid_argument if a tensor of `parameters` is a shard: "`user` would take a shard of fully_shard() for
/// the whole parameter. `instead`".
void refuse_shards(const std::vector<at::Tensor>& parameters, const std::string& user, const std::string& instead);

}  // namespace ddp
